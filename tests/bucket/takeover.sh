#!/usr/bin/env bash
# The process behind a volume in a bucket is replaced while files are written: nothing is lost, here and in the bucket.
. "$TESTS/prelude.sh"
trap '[ -z "${S3_SERVER_PID:-}" ] || stop_s3' EXIT
start_s3 "$SCRATCH/s3"
make_bucket "$SCRATCH/s3" volumes
mount=$SCRATCH/mount
create_volume "$SCRATCH/volume" --store s3://volumes/a
mount_volume "$SCRATCH/volume" "$mount" --cache-size 64MiB
write_tree "$SCRATCH/tree" 20
mkdir "$mount/copies"
cp -a "$SCRATCH/tree" "$mount/tree"
# Writes all the time, as fast as the machine lets it and faster than its server takes it, and not more than ten copies.
copy() {
  local number=0
  until [ -e "$SCRATCH/stop" ]; do
    rm -rf "$mount/copies/$number"
    cp -a "$SCRATCH/tree" "$mount/copies/$number" || return 1
    number=$(((number + 1) % 10))
  done
}
copy &
copying=$!
for round in 1 2 3 4; do
  before=$(daemon_of "$mount")
  timeout 120 "$FOREBAY" mount --takeover "$mount" </dev/null >"$SCRATCH/takeover.log" 2>&1 || { cat "$SCRATCH/takeover.log" >&2; fail takeover; }
  [ "$(daemon_of "$mount")" != "$before" ] || fail "the same process serves"
done
touch "$SCRATCH/stop"
wait "$copying" || fail "who wrote meanwhile got an error"
same_tree "$SCRATCH/tree" "$mount/tree"
for copy in "$mount"/copies/*; do same_tree "$SCRATCH/tree" "$copy"; done
umount_volume "$mount"
clean_fsck "$SCRATCH/volume"
create_volume "$SCRATCH/again" --recover-from s3://volumes/a
mount_volume "$SCRATCH/again" "$mount"
same_tree "$SCRATCH/tree" "$mount/tree"
for copy in "$mount"/copies/*; do same_tree "$SCRATCH/tree" "$copy"; done
umount_volume "$mount"
