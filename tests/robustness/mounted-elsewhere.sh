#!/usr/bin/env bash
# A volume that is mounted is not mounted a second time.
. "$TESTS/prelude.sh"
create_volume "$SCRATCH/volume"
mount_volume "$SCRATCH/volume" "$SCRATCH/mount"
write_tree "$SCRATCH/mount" 5
mkdir "$SCRATCH/second"
refused "" "$FOREBAY" mount "$SCRATCH/volume" "$SCRATCH/second"
says 'mounted|in use' "$SCRATCH/mount"
! mountpoint -q "$SCRATCH/second" || fail "it is mounted twice"
ls "$SCRATCH/mount/dir-0" >/dev/null
umount_volume "$SCRATCH/mount"
mount_volume "$SCRATCH/volume" "$SCRATCH/second"
umount_volume "$SCRATCH/second"
clean_fsck "$SCRATCH/volume"
