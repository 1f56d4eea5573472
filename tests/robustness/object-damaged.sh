#!/usr/bin/env bash
# An object of the store is missing, or has a flipped bit: EIO there and nowhere else, never wrong bytes, and it is named.
. "$TESTS/prelude.sh"
mkdir "$SCRATCH/store"
create_volume "$SCRATCH/volume" --store "file://$SCRATCH/store" --compression none
mount_volume "$SCRATCH/volume" "$SCRATCH/mount"
for number in 1 2 3 4; do head -c 40000000 /dev/urandom >"$SCRATCH/mount/file-$number"; done
(cd "$SCRATCH/mount" && sha256sum file-*) >"$SCRATCH/sums"
umount_volume "$SCRATCH/mount"
object=$(find "$SCRATCH/store" -type f -size +8M | sort | sed -n '1p')
[ -n "$object" ] || fail "no large object in the store"
cp -a "$object" "$SCRATCH/kept"
look() { # WHAT: reads all, at least one range fails, what is read is right, fsck says so, and the object is named.
  rm -rf "$SCRATCH/cache" && echo 3 >/proc/sys/vm/drop_caches
  mount_volume "$SCRATCH/volume" "$SCRATCH/mount" --cache-dir "$SCRATCH/cache"
  /usr/bin/python3 "$TESTS/robustness/read_ranges.py" "$SCRATCH/mount" "$SCRATCH/sums" || fail "$1"
  "$FOREBAY" status "$SCRATCH/mount" >"$SCRATCH/status" 2>&1
  grep -q "$(basename "$object")" "$SCRATCH/status" || { cat "$SCRATCH/status"; fail "$1: status does not name the object"; }
  umount_volume "$SCRATCH/mount"
  ! "$FOREBAY" fsck "$SCRATCH/volume" >"$SCRATCH/fsck.log" 2>&1 || fail "$1: fsck finds nothing"
  grep -q "$(basename "$object")" "$SCRATCH/fsck.log" || { cat "$SCRATCH/fsck.log"; fail "$1: fsck does not name the object"; }
}
size=$(stat -c %s "$object")
chmod u+w "$object"
/usr/bin/python3 -c 'import sys
with open(sys.argv[1], "r+b") as file:
    file.seek(int(sys.argv[2])); byte = file.read(1)[0]
    file.seek(int(sys.argv[2])); file.write(bytes([byte ^ 4]))' "$object" $((size / 2))
look "a flipped bit"
rm -f "$object"
look "a missing object"
cp -a "$SCRATCH/kept" "$object"
rm -rf "$SCRATCH/cache"
mount_volume "$SCRATCH/volume" "$SCRATCH/mount" --cache-dir "$SCRATCH/cache"
(cd "$SCRATCH/mount" && sha256sum --quiet -c "$SCRATCH/sums")
umount_volume "$SCRATCH/mount"
clean_fsck "$SCRATCH/volume"
