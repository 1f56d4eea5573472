#!/usr/bin/env bash
# A mount point that is missing, a file, not empty of a mount, or inside the volume is refused.
. "$TESTS/prelude.sh"
create_volume "$SCRATCH/volume"
refused "$SCRATCH/volume" "$FOREBAY" mount "$SCRATCH/volume" "$SCRATCH/missing"
says "$SCRATCH/missing"
[ ! -e "$SCRATCH/missing" ] || fail "the mount point was made"
touch "$SCRATCH/file"
refused "$SCRATCH/volume" "$FOREBAY" mount "$SCRATCH/volume" "$SCRATCH/file"
says "$SCRATCH/file" 'directory'
create_volume "$SCRATCH/other"
mount_volume "$SCRATCH/other" "$SCRATCH/busy"
refused "$SCRATCH/volume" "$FOREBAY" mount "$SCRATCH/volume" "$SCRATCH/busy"
says "$SCRATCH/busy" 'mounted|busy'
umount_volume "$SCRATCH/busy"
refused "$SCRATCH/volume" "$FOREBAY" mount "$SCRATCH/volume" "$SCRATCH/volume"
refused "" "$FOREBAY" umount "$SCRATCH/busy"
says "$SCRATCH/busy" 'not'
refused "" "$FOREBAY" mount "$SCRATCH/no-volume" "$SCRATCH/busy"
says "$SCRATCH/no-volume"
mkdir "$SCRATCH/no-volume-at-all"
refused "$SCRATCH/no-volume-at-all" "$FOREBAY" mount "$SCRATCH/no-volume-at-all" "$SCRATCH/busy"
refused "$SCRATCH/no-volume-at-all" "$FOREBAY" fsck "$SCRATCH/no-volume-at-all"
