#!/usr/bin/env bash
# SIGTERM drains: the daemon unmounts and ends, and everything that was written is there.
. "$TESTS/prelude.sh"
create_volume "$SCRATCH/volume"
mount_volume "$SCRATCH/volume" "$SCRATCH/mount"
write_tree "$SCRATCH/mount"
manifest "$SCRATCH/mount" >"$SCRATCH/before"
daemon=$(daemon_of "$SCRATCH/mount")
kill -TERM "$daemon"
gone() { ! kill -0 "$daemon" 2>/dev/null; }
wait_for 120 "the daemon to end" gone
! mountpoint -q "$SCRATCH/mount" || fail "still mounted"
mount_volume "$SCRATCH/volume" "$SCRATCH/mount"
manifest "$SCRATCH/mount" | cmp - "$SCRATCH/before"
umount_volume "$SCRATCH/mount"
clean_fsck "$SCRATCH/volume"
