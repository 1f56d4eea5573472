#!/usr/bin/env bash
# The volume's disk is full: ENOSPC, and unlink, truncate, reading and umount work; then the space is back.
. "$TESTS/prelude.sh"
truncate -s 320M "$SCRATCH/disk.img"
mkfs.ext4 -q -F -m 0 "$SCRATCH/disk.img"
mkdir "$SCRATCH/disk"
mount -o loop "$SCRATCH/disk.img" "$SCRATCH/disk"
create_volume "$SCRATCH/disk/volume" --compression none
mount_volume "$SCRATCH/disk/volume" "$SCRATCH/mount"
mkdir "$SCRATCH/mount/keep"
write_tree "$SCRATCH/mount/keep" 30
find "$SCRATCH/mount" -type f -exec sync {} +
manifest "$SCRATCH/mount/keep" >"$SCRATCH/before"
full=
for number in $(seq 100); do
  status=0
  dd if=/dev/urandom of="$SCRATCH/mount/fill-$number" bs=1M count=8 conv=fsync status=none 2>"$SCRATCH/dd.log" || status=$?
  if [ "$status" -ne 0 ]; then full=$number; break; fi
done
[ -n "$full" ] || fail "800 MiB went into a disk of 320 MiB"
grep -q 'No space left' "$SCRATCH/dd.log" || { cat "$SCRATCH/dd.log"; fail "not ENOSPC"; }
manifest "$SCRATCH/mount/keep" | cmp - "$SCRATCH/before" || fail "old data is not what it was"
sha256sum "$SCRATCH/mount/fill-1" >"$SCRATCH/sum"
truncate -s 1000 "$SCRATCH/mount/fill-2" || fail "truncate does not work on a full disk"
rm "$SCRATCH/mount/fill-3" || fail "unlink does not work on a full disk"
umount_volume "$SCRATCH/mount"
mount_volume "$SCRATCH/disk/volume" "$SCRATCH/mount"
manifest "$SCRATCH/mount/keep" | cmp - "$SCRATCH/before" || fail "old data is not what it was after a remount"
sha256sum --quiet -c "$SCRATCH/sum"
rm "$SCRATCH"/mount/fill-*
"$FOREBAY" gc "$SCRATCH/disk/volume" >"$SCRATCH/gc.log" 2>&1 || { cat "$SCRATCH/gc.log"; fail gc; }
again() { rm -f "$SCRATCH/mount/again" && dd if=/dev/urandom of="$SCRATCH/mount/again" bs=1M count=100 conv=fsync status=none; }
wait_for 90 "space to come back" again
manifest "$SCRATCH/mount/keep" | cmp - "$SCRATCH/before"
umount_volume "$SCRATCH/mount"
clean_fsck "$SCRATCH/disk/volume"
umount "$SCRATCH/disk"
