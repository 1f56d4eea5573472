#!/usr/bin/env bash
# A mount's process is replaced where that is special: in front, as a service, in a set of processors, by a shell that has files of the mount open.
. "$TESTS/prelude.sh"
uring=/sys/module/fuse/parameters/enable_uring
[ ! -w "$uring" ] || echo Y >"$uring"
mount=$SCRATCH/mount
create_volume "$SCRATCH/volume"

served_by() { [ "$(daemon_of "$mount")" = "$1" ]; }
gone() { ! kill -0 "$1"; }

echo "in front"
mount_volume "$SCRATCH/volume" "$mount"
before=$(daemon_of "$mount")
echo kept >"$mount/file"
exec 7<"$mount/file"
"$FOREBAY" mount --takeover -f "$mount" </dev/null >"$SCRATCH/front.log" 2>&1 &
front=$!
wait_for 120 "the process in front to serve" served_by "$front"
wait_for 60 "the old process to end" gone "$before"
[ "$(cat <&7)" = kept ] || fail "an open file has changed"
exec 7<&-
umount_volume "$mount"
wait "$front" || { cat "$SCRATCH/front.log" >&2; fail "the process in front ended with an error"; }

echo "as a service"
python3 - "$SCRATCH/notify" >"$SCRATCH/notified" <<'PYTHON' &
import socket, sys
listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
listener.bind(sys.argv[1])
while True:
    said = listener.recv(4096).decode()
    if said.startswith("MAINPID="):
        print(said.strip(), flush=True)
        break
PYTHON
wait_for 60 "who is notified" test -S "$SCRATCH/notify"
NOTIFY_SOCKET=$SCRATCH/notify mount_volume "$SCRATCH/volume" "$mount"
timeout 120 "$FOREBAY" mount --takeover "$mount" </dev/null >"$SCRATCH/takeover.log" 2>&1 || { cat "$SCRATCH/takeover.log" >&2; fail takeover; }
wait_for 60 "the message" test -s "$SCRATCH/notified"
[ "$(cat "$SCRATCH/notified")" = "MAINPID=$(daemon_of "$mount")" ] || fail "the service's main process is not the new one: $(cat "$SCRATCH/notified")"

echo "by a shell that has files of the mount open"
exec 7<"$mount/file" 8<"$mount"
timeout 120 "$FOREBAY" mount --takeover "$mount" </dev/null >"$SCRATCH/takeover.log" 2>&1 || { cat "$SCRATCH/takeover.log" >&2; fail takeover; }
exec 7<&- 8<&-
umount_volume "$mount"

echo "in a set of processors"
# in_one_processor COMMAND...: runs it where only processor 0 may be used.
if [ -d /sys/fs/cgroup/cpuset ] && mkdir "/sys/fs/cgroup/cpuset/forebay-$$" 2>/dev/null; then
  set=/sys/fs/cgroup/cpuset/forebay-$$
  cat /sys/fs/cgroup/cpuset/cpuset.mems >"$set/cpuset.mems"
  echo 0 >"$set/cpuset.cpus"
  trap 'rmdir "$set" 2>/dev/null || true' EXIT
  in_one_processor() { sh -c 'echo $$ >"$0/cgroup.procs"; exec "$@"' "$set" "$@"; }
else
  # Where there are no such sets, by affinity, which the process could change.
  in_one_processor() { taskset -c 0 "$@"; }
fi
for transport in dev_fuse io_uring; do
  in_one_processor "$FOREBAY" mount "$SCRATCH/volume" "$mount" -o "allow_other,transport=$transport" </dev/null >"$SCRATCH/mount.log" 2>&1 ||
    { cat "$SCRATCH/mount.log" >&2; fail mount; }
  for where in "" in_one_processor; do
    # shellcheck disable=SC2086
    $where timeout 120 "$FOREBAY" mount --takeover "$mount" </dev/null >"$SCRATCH/takeover.log" 2>&1 ||
      { cat "$SCRATCH/takeover.log" >&2; fail "takeover ${where:-from outside}, $transport"; }
    [ "$(cat "$mount/file")" = kept ] || fail "the mount is not served"
    for processor in $(seq 0 $(($(nproc) - 1))); do taskset -c "$processor" touch "$mount/by-$processor"; done
  done
  umount_volume "$mount"
done
clean_fsck "$SCRATCH/volume"
[ -z "${set:-}" ] || wait_for 60 "the set of processors to be empty" rmdir "$set"
