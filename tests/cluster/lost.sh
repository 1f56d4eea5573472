#!/usr/bin/env bash
# All disks that had what fsync acknowledged are lost before the store has it, and the operator says so (`forebay group remove --lost`). What is lost is an I/O error at
# once, with one line in the mount's log that names file and bytes; who wrote it is told by its next fsync, once, and by a close; other files, and other bytes of the same file,
# are read as ever; what is written anew is whole, on every machine; and then nothing of it is left anywhere.
. "$TESTS/prelude.sh"
. "$TESTS/cluster/cluster.bash"
. "$TESTS/cluster/proxies.bash"

replica_group 5
mount_shared writer --log "$SCRATCH/writer.log"
mount_shared reader --log "$SCRATCH/reader.log"
W=$SCRATCH/writer R=$SCRATCH/reader
# write FILE MIB SEED [AT]: so many MiB at that MiB of the file, synced. bytes MIB SEED: the same to stdout.
bytes() { python3 -c 'import random, sys; sys.stdout.buffer.write(random.Random(sys.argv[2]).randbytes(int(sys.argv[1]) << 20))' "$@"; }
write() { bytes "$2" "$3" | dd of="$1" bs=1M seek="${4:-0}" iflag=fullblock conv=fsync,notrunc status=none; }
# reads FILE MIB SEED [AT]: this is what is there.
reads() { cmp <(dd if="$1" bs=64k skip=$((${4:-0} * 16)) count=$(($2 * 16)) status=none) <(bytes "$2" "$3"); }
# fails ERROR COMMAND...: at once, with this error.
fails() {
  local error=$1 said status=0
  shift
  said=$(timeout 30 "$@" 2>&1 >/dev/null) || status=$?
  [ "$status" != 124 ] || fail "it is waited for: $*"
  [ "$status" != 0 ] && [[ $said == *"$error"* ]] || fail "status $status, '$said' instead of '$error': $*"
}
lines() { grep -c "$2" "$SCRATCH/$1.log" || true; }

write "$W/stored" 3 stored
wait_for 60 "it is in the store" is_clean

# What comes now reaches no store.
kill -STOP "$STORE_PID"
write "$W/lost" 3 lost
write "$W/part" 2 part
write "$W/over" 2 over
write "$W/cut" 2 cut
write "$W/gone" 2 gone
# What is to be lost is in no cache.
reads "$R/gone" 2 gone || fail "it is not read from members"
# Somebody has one of them open, and goes on when he is told.
python3 - "$W/held" "$SCRATCH/go" >"$SCRATCH/held.said" <<'PYTHON' &
import errno, os, sys, time

def told(what):
    try:
        what()
        return "ok"
    except OSError as error:
        return errno.errorcode[error.errno]

file = os.open(sys.argv[1], os.O_CREAT | os.O_RDWR)
os.write(file, b"h" * 2_000_000)
os.fsync(file)
print("synced", flush=True)
while not os.path.exists(sys.argv[2]):
    time.sleep(0.1)
other = os.open(sys.argv[1], os.O_RDWR)
print(*[told(what) for what in (lambda: os.close(other), lambda: os.fsync(file), lambda: os.fsync(file))], flush=True)
os.ftruncate(file, 0)
os.pwrite(file, b"n" * 2_000_000, 0)
print(told(lambda: os.fsync(file)), told(lambda: os.close(file)), flush=True)
PYTHON
held=$!
wait_for 60 "a file to be held" grep -q synced "$SCRATCH/held.said"

# The disks of all are gone.
for name in a b c; do kill -KILL "${PROXY_PID[$name]}"; done
for name in a b c; do wait "${PROXY_PID[$name]}" 2>/dev/null || true; rm -r "$SCRATCH/proxy-$name"; done
of_group() { ask group show fast --json | python3 -c "import json, sys; print(*json.load(sys.stdin)['$1'])"; }
all_out() { [ "$(of_group lost | wc -w)" = 3 ]; }
wait_for 60 "all are counted out" all_out
for name in a b c; do start_proxy "$name"; done
wait_for 60 "three new members" has_members 3
# Each of two has what nobody else has that is there; of the third one nothing may be missing.
refused=0
for id in $(of_group lost); do
  if ! ask group remove fast "$id" --lost >"$SCRATCH/said" 2>&1; then
    grep -q "no other member that is there has" "$SCRATCH/said" || { cat "$SCRATCH/said" >&2; fail "refused otherwise"; }
    refused=$((refused + 1))
  fi
done
[ "$refused" -ge 2 ] || fail "members were given up without a word that something is lost with them"
for id in $(of_group lost); do ask group remove fast "$id" --lost --yes >/dev/null; done
kill -CONT "$STORE_PID"
is_told() { ask group lost --files | grep -q " lost .*" && ! ask group lost | grep -q " waits "; }
wait_for 60 "the owner has given it up" is_told
for name in lost part over cut gone held; do ask group lost --files | grep -q "/$name\$" || { ask group lost --files >&2; fail "$name is not named"; }; done

# Reading it is an error at once, for who wrote it and for others, and one line however often.
for mount in reader writer; do
  for _ in 1 2 3; do fails "Input/output error" dd if="$SCRATCH/$mount/lost" of=/dev/null bs=64k; done
  fails "Input/output error" dd if="$SCRATCH/$mount/lost" of=/dev/null bs=4k skip=300 count=1
  [ "$(lines "$mount" "'/lost' (inode")" = 1 ] || { tail -n 5 "$SCRATCH/$mount.log" >&2; fail "$(lines "$mount" "'/lost' (inode") lines at $mount, and there should be one"; }
  grep "'/lost' (inode" "$SCRATCH/$mount.log" | grep -q "3145728 bytes between 0 and 3145728 are lost for good.*group remove --lost.*put the file back from a copy" ||
    { grep "'/lost'" "$SCRATCH/$mount.log" >&2; fail "the line does not say what is lost and what to do"; }
done
fails "Input/output error" python3 -c 'import os, sys; os.copy_file_range(os.open(sys.argv[1], os.O_RDONLY), os.open(sys.argv[2], os.O_WRONLY | os.O_CREAT), 3000000)' "$W/lost" "$W/copy"
fails "Input/output error" cp "$W/lost" "$W/copy"
rm -f "$W/copy"
# Everything else is as ever.
for mount in "$R" "$W"; do reads "$mount/stored" 3 stored || fail "$mount: a file that the store has is read wrong"; done

# Who wrote it is told by fsync, once, though it was promised before; a close tells it as well.
touch "$SCRATCH/go"
wait "$held" || fail "who had a file open ended otherwise: $(cat "$SCRATCH/held.said")"
[ "$(tail -n 2 "$SCRATCH/held.said" | paste -sd ' ')" = "EIO EIO ok ok ok" ] || fail "close, fsync, fsync, and when it was written anew: $(cat "$SCRATCH/held.said")"
[ "$(head -c 4 "$R/held")" = nnnn ] || fail "what was written anew is not there"

# Other bytes of the same file: written behind it, and in its place.
! write "$W/part" 1 more 2 2>/dev/null || fail "the first fsync of a file that has lost something does not say so"
write "$W/part" 1 more 2 || fail "the next one says it again"
for mount in "$R" "$W"; do
  reads "$mount/part" 1 more 2 || fail "$mount: what is beside the loss is read wrong"
  fails "Input/output error" dd if="$mount/part" of=/dev/null bs=64k count=1
done
write "$R/part" 2 again
for mount in "$R" "$W"; do { reads "$mount/part" 2 again && reads "$mount/part" 1 more 2; } || fail "$mount: what was written in its place is read wrong"; done
write "$R/over" 1 half
fails "Input/output error" dd if="$W/over" of=/dev/null bs=64k
reads "$W/over" 1 half || fail "the half that was written anew is read wrong"
truncate -s 1M "$W/over"
for mount in "$R" "$W"; do reads "$mount/over" 1 half || fail "$mount: what is left is read wrong"; done
truncate -s 0 "$W/cut"
[ ! -s "$R/cut" ] || fail "what was cut to nothing has something"
write "$W/cut" 2 anew
reads "$R/cut" 2 anew || fail "what was cut to nothing and written is read wrong"
rm "$W/gone"
write "$R/lost" 3 anew
for mount in "$R" "$W"; do reads "$mount/lost" 3 anew || fail "$mount: a file that was written anew is read wrong"; done

# Nothing of it is left, and the store has the rest.
is_over() { ask group lost | grep -q "nothing is missing"; }
wait_for 90 "what is lost is in no file any more" is_over
wait_for 90 "what was written is in the store" is_clean
umount_volume "$W"
umount_volume "$R"
for name in a b c; do end_proxy "$name"; done
mount_shared alone
A=$SCRATCH/alone
{ reads "$A/stored" 3 stored && reads "$A/lost" 3 anew && reads "$A/part" 2 again && reads "$A/over" 1 half && reads "$A/cut" 2 anew; } || fail "the store has something else"
end_cluster alone
kill "$STORE_PID"
