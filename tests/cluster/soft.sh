#!/usr/bin/env bash
# Nobody answers for the volume: a mount with `timeout=` fails what needs the servers and hangs nobody, a mount without it waits, and who waits there can be killed.
# When a server is back both go on, and have what was synced, and what was written meanwhile.
. "$TESTS/prelude.sh"
. "$TESTS/cluster/cluster.bash"
start_cluster
mount_shared soft -o timeout=2
mount_shared hard
mkdir "$SCRATCH/hard/dir"
echo synced >"$SCRATCH/soft/synced"
sync "$SCRATCH/soft/synced"
# A directory that is the soft mount's alone, an open file in it, and one of the hard mount's.
mkdir "$SCRATCH/soft/own"
touch "$SCRATCH"/soft/own/{1,2,3}
exec 8>"$SCRATCH/soft/own/kept" 9>"$SCRATCH/hard/other"
sync "$SCRATCH/soft/own/kept" "$SCRATCH/hard/other"
kill_meta a
# Under leases that still count: it is kept here, and is the servers' to have.
echo kept >&8
echo other >&9
touch "$SCRATCH/soft/own/late"

# fails COMMAND...: by itself, with an error of the system. 60 s are for what would never end.
fails() {
  local status=0
  timeout 60 "$@" >"$SCRATCH/said" 2>&1 || status=$?
  [ "$status" -ne 0 ] || fail "nobody was there, and this succeeded: $*"
  [ "$status" -lt 124 ] || fail "this does not end: $*"
}
# What the mount does not know and nobody tells.
is_over() {
  timeout 60 stat "$SCRATCH/soft/never-seen" >"$SCRATCH/over" 2>&1 || true
  ! grep -q "No such file" "$SCRATCH/over"
}
sync_fd() { python3 -c 'import os, sys; os.fsync(int(sys.argv[1]))' "$1"; }
export -f sync_fd
fails bash -c "sync_fd 8"
fails sync "$SCRATCH/soft/own/late"
wait_for 60 "the end of what the mount may say by itself" is_over
for command in "stat $SCRATCH/soft/never-seen" "ls $SCRATCH/soft/dir" "mkdir $SCRATCH/soft/new" "rm $SCRATCH/soft/synced"; do
  # shellcheck disable=SC2086
  fails $command
  grep -qiE "timed out|Input/output|not connected" "$SCRATCH/said" || { cat "$SCRATCH/said" >&2; fail "another error of: $command"; }
done

# The other one waits.
mkdir "$SCRATCH/hard/waits" &
WAITS=$!
# Of these nobody waits for the end.
KILLED=()
mkdir "$SCRATCH/hard/killed" & KILLED+=($!)
stat "$SCRATCH/hard/never-seen" >/dev/null & KILLED+=($!)
python3 -c 'import os, sys; os.fsync(int(sys.argv[1]))' 9 & KILLED+=($!)
sleep 3
for pid in "$WAITS" "${KILLED[@]}"; do kill -0 "$pid" || fail "a hard mount did not wait"; done
kill -TERM "${KILLED[@]}"
is_gone() { ! kill -0 "$1" 2>/dev/null; }
for pid in "${KILLED[@]}"; do
  wait_for 60 "a process that was killed to end" is_gone "$pid"
  wait "$pid" && fail "a process that was killed has succeeded" || true
done
kill -0 "$WAITS" || fail "a hard mount did not wait for long"

start_meta a 8>&- 9>&-
meta_serves
wait "$WAITS" || fail "what waited on a hard mount failed"
goes() { timeout 60 mkdir "$SCRATCH/soft/after"; }
wait_for 60 "the soft mount to go on" goes
[ "$(timeout 60 cat "$SCRATCH/soft/synced")" = synced ] || fail "what was synced is not there"
timeout 60 bash -c "sync_fd 8 && sync_fd 9" || fail "what was kept cannot be synced when the servers are back"
exec 8>&- 9>&-
[ "$(timeout 60 cat "$SCRATCH/hard/own/kept")" = kept ] && [ -e "$SCRATCH/hard/own/late" ] || fail "what was done meanwhile is not there"
[ "$(timeout 60 cat "$SCRATCH/soft/other")" = other ] || fail "what a killed process was to sync is not there"
[ -d "$SCRATCH/soft/waits" ] && [ -d "$SCRATCH/hard/after" ] || fail "the mounts do not agree"
end_cluster soft hard
