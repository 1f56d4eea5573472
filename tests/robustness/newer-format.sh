#!/usr/bin/env bash
# A volume of a newer format is refused, by version.
. "$TESTS/prelude.sh"
create_volume "$SCRATCH/volume"
# The identity file carries the format version behind a checksum: a newer one is written by the tool for it.
"$FOREBAY" debug set-format-version "$SCRATCH/volume" 99 >/dev/null
mkdir "$SCRATCH/mount"
refused "$SCRATCH/volume" "$FOREBAY" mount "$SCRATCH/volume" "$SCRATCH/mount"
says 'newer|version' 99
refused "$SCRATCH/volume" "$FOREBAY" fsck "$SCRATCH/volume"
