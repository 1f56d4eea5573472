#!/usr/bin/env bash
# One directory of 100,000 entries: listed, looked up, renamed, and gone, across a remount.
. "$TESTS/prelude.sh"
create_volume "$SCRATCH/volume"
mount_volume "$SCRATCH/volume" "$SCRATCH/mount"
mkdir "$SCRATCH/mount/many"
/usr/bin/python3 -c 'import os, sys
for number in range(100_000): os.close(os.open(f"{sys.argv[1]}/name-{number:06}", os.O_CREAT | os.O_EXCL | os.O_WRONLY))' "$SCRATCH/mount/many"
[ "$(ls -f "$SCRATCH/mount/many" | wc -l)" -eq 100002 ] || fail "not all entries are listed"
umount_volume "$SCRATCH/mount"
mount_volume "$SCRATCH/volume" "$SCRATCH/mount"
ls "$SCRATCH/mount/many" | cmp - <(seq -f 'name-%06.0f' 0 99999) || fail "the listing differs after a remount"
mv "$SCRATCH/mount/many" "$SCRATCH/mount/moved"
mv "$SCRATCH/mount/moved/name-077777" "$SCRATCH/mount/moved/renamed"
[ ! -e "$SCRATCH/mount/moved/name-077777" ] && [ -e "$SCRATCH/mount/moved/renamed" ] || fail "rename"
rm -r "$SCRATCH/mount/moved"
[ -z "$(ls -A "$SCRATCH/mount")" ] || fail "something is left"
umount_volume "$SCRATCH/mount"
clean_fsck "$SCRATCH/volume"
