#!/usr/bin/env bash
# Files that the kernel reads by itself: with -o ro as it comes, on a writable mount by option, and not on a cache disk that is full. The bytes are
# the same in all of them.
. "$TESTS/prelude.sh"
volume=$SCRATCH/volume mount=$SCRATCH/mount

# through KEY: of the status' part about it.
through() {
  "$FOREBAY" status "$mount" --json | python3 -c 'import json, sys
value = json.load(sys.stdin)["passthrough"]
for key in sys.argv[1].split("."): value = value[key]
print(value)' "$1"
}

# read_through FILE: reads it until the kernel is given an open of it.
read_through() { cat "$1" >/dev/null; [ "$(through opens)" -gt 0 ]; }

create_volume "$volume"
mount_volume "$volume" "$mount"
[ "$(through on)" = False ] || fail "a writable mount has it without being asked"
"$FOREBAY" status "$mount" >"$SCRATCH/told"
grep -q 'passthrough *off: .*--passthrough-size' "$SCRATCH/told" || fail "status does not say how to have it"
head -c 20000001 /dev/urandom >"$SCRATCH/file"
cp "$SCRATCH/file" "$mount/file"
umount_volume "$mount"

echo "read-only"
mount_volume "$volume" "$mount" -o ro
grep -q '^passthrough: ' "$SCRATCH/mount.log" || fail "mount does not say that it has it"
wait_for 60 "an open that the kernel serves" read_through "$mount/file"
cmp "$SCRATCH/file" "$mount/file"
exec 3<"$mount/file"
is_counted() { [ "$(through open)" -gt 0 ]; }
wait_for 60 "the open to be counted" is_counted
[ -z "$(ls -A "$volume/assembled")" ] || fail "assembled files have names"
kill -9 "$(daemon_of "$mount")"
wait_for 60 "the end of the mount" sh -c "! stat '$mount/file'"
timeout 10 cat "$mount/file" >/dev/null 2>&1 && fail "a dead mount reads"
exec 3<&-
umount -l "$mount"

echo "writable, by option"
mount_volume "$volume" "$mount" --passthrough-size 64MiB
wait_for 60 "an open that the kernel serves" read_through "$mount/file"
timeout 120 python3 "$TESTS/robustness/passthrough_writers.py" "$mount/file" "$SCRATCH/file"
umount_volume "$mount"
mount_volume "$volume" "$mount"
cmp "$SCRATCH/file" "$mount/file"
umount_volume "$mount"

echo "more files than have room"
mount_volume "$volume" "$mount" --passthrough-size 10MiB
mkdir "$mount/dir"
export -f through
export FOREBAY mount
timeout 240 python3 "$TESTS/robustness/passthrough_churn.py" "$mount/dir" bash -c 'through opens' || fail "$(through opens) opens by the kernel"
umount_volume "$mount"

echo "a cache disk that is full"
mkdir "$SCRATCH/small"
mount -t tmpfs -o size=4m tmpfs "$SCRATCH/small"
trap 'umount -l "$SCRATCH/small" 2>/dev/null || true' EXIT
mount_volume "$volume" "$mount" -o ro --cache-dir "$SCRATCH/small"
given_up() { cmp "$SCRATCH/file" "$mount/file" && [ "$(through assembled.given_up)" -gt 0 ]; }
wait_for 60 "an assembly that is given up" given_up
[ "$(through opens)" -eq 0 ] || fail "a part of a file was handed over"
takes_no_room() { [ "$(df --output=used "$SCRATCH/small" | tail -n 1)" -lt 64 ]; }
wait_for 60 "what was given up to take no room" takes_no_room
umount_volume "$mount"

clean_fsck "$volume"
