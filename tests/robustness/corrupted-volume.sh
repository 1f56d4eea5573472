#!/usr/bin/env bash
# A volume with a truncated or overwritten file is refused or repaired by its journal; never mounted wrong.
. "$TESTS/prelude.sh"
create_volume "$SCRATCH/volume"
mount_volume "$SCRATCH/volume" "$SCRATCH/mount"
write_tree "$SCRATCH/mount" 30
umount_volume "$SCRATCH/mount"
(cd "$SCRATCH/volume" && find . -type f -size +0 -printf '%P\n' | sort) >"$SCRATCH/files"
[ -s "$SCRATCH/files" ] || fail "the volume holds no files"
cp -a "$SCRATCH/volume" "$SCRATCH/whole"
mount_volume "$SCRATCH/whole" "$SCRATCH/mount"
manifest "$SCRATCH/mount" >"$SCRATCH/right"
umount_volume "$SCRATCH/mount"
tried=0
while read -r file; do
  for damage in truncate overwrite; do
    rm -rf "$SCRATCH/copy" && cp -a "$SCRATCH/volume" "$SCRATCH/copy"
    case $damage in
      truncate) truncate -s "$(($(stat -c %s "$SCRATCH/copy/$file") / 2))" "$SCRATCH/copy/$file" ;;
      overwrite) printf 'damaged!' | dd of="$SCRATCH/copy/$file" bs=1 seek="$(($(stat -c %s "$SCRATCH/copy/$file") / 2))" conv=notrunc status=none ;;
    esac
    status=0
    timeout 60 "$FOREBAY" mount "$SCRATCH/copy" "$SCRATCH/mount" -o allow_other </dev/null >/dev/null 2>"$SCRATCH/message" || status=$?
    [ "$status" -lt 124 ] || fail "$damage of $file: mount crashed or hung ($status)"
    ! grep -q panicked "$SCRATCH/message" || { cat "$SCRATCH/message"; fail "$damage of $file: a panic"; }
    if [ "$status" -eq 0 ]; then
      # Mounted: what is read is right or an error, never something else.
      (cd "$SCRATCH/mount" && find . -type f | sort | while read -r name; do
        if sum=$(sha256sum <"$name" 2>/dev/null); then echo "$name $sum"; fi
      done) >"$SCRATCH/read" 2>/dev/null || true
      umount_volume "$SCRATCH/mount"
      [ -e "$SCRATCH/sums" ] || {
        mount_volume "$SCRATCH/whole" "$SCRATCH/mount"
        (cd "$SCRATCH/mount" && find . -type f | sort | while read -r name; do echo "$name $(sha256sum <"$name")"; done) >"$SCRATCH/sums"
        umount_volume "$SCRATCH/mount"
      }
      wrong=$(grep -vxFf "$SCRATCH/sums" "$SCRATCH/read" || true)
      [ -z "$wrong" ] || { echo "$wrong"; fail "$damage of $file: wrong bytes were read"; }
    else
      [ "$(grep -c . "$SCRATCH/message")" -eq 1 ] || { cat "$SCRATCH/message"; fail "$damage of $file: not one line"; }
      ! timeout 60 "$FOREBAY" fsck "$SCRATCH/copy" </dev/null >/dev/null 2>&1 || fail "$damage of $file: refused by mount, but fsck finds nothing"
    fi
    tried=$((tried + 1))
  done
done < <(sed -n '1,12p' "$SCRATCH/files")
echo "$tried passed, 0 failed"
