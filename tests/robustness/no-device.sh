#!/usr/bin/env bash
# No /dev/fuse, or no right to mount: one line that says so.
. "$TESTS/prelude.sh"
create_volume "$SCRATCH/volume"
mkdir "$SCRATCH/mount"
chmod -R a+rX "$SCRATCH"
# An empty /dev in a mount namespace of its own.
refused "$SCRATCH/volume" "$TESTS/own-mounts" bash -c 'mount -t tmpfs none /dev && exec "$@"' - \
  "$FOREBAY" mount "$SCRATCH/volume" "$SCRATCH/mount"
says '/dev/fuse'
! mountpoint -q "$SCRATCH/mount" || fail "it is mounted"
# Root without the right to mount.
refused "$SCRATCH/volume" setpriv --bounding-set -sys_admin --inh-caps -sys_admin "$FOREBAY" mount "$SCRATCH/volume" "$SCRATCH/mount"
says 'permi|privilege|root|CAP_SYS_ADMIN'
# A user who may not read the volume.
chmod 700 "$SCRATCH/volume"
install -m 755 "$FOREBAY" "$SCRATCH/forebay"
refused "" setpriv --reuid=nobody --regid=nogroup --clear-groups "$SCRATCH/forebay" mount "$SCRATCH/volume" "$SCRATCH/mount"
says 'permi|denied'
clean_fsck "$SCRATCH/volume"
