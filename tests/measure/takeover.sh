#!/usr/bin/env bash
# How long a shared volume stands still when its owner is killed, by root: TESTS=$PWD/tests FOREBAY=$PWD/target/release/forebay SCRATCH=$(mktemp -d) bash tests/measure/takeover.sh [postgres|slate].
# SCRATCH is a directory that all may enter. Two servers and two mounts on this machine; the owner is killed (SIGKILL) right after a change on the first mount, and the next changes, one on
# each mount, are timed until they have returned. The killed server is started again, and stands by, before the next round. Nothing is judged here, docs/benchmarks.md says what came of it.
. "$TESTS/prelude.sh"
. "$TESTS/cluster/cluster.bash"
. "$TESTS/cluster/postgres.bash"
unset http_proxy https_proxy all_proxy HTTP_PROXY HTTPS_PROXY ALL_PROXY
readonly ROUNDS=${ROUNDS:-7} KIND=${1:-postgres}

engine_of() {
  case $1 in
    postgres)
      make_database
      ENGINE="postgres://forebay:$PG_PASSWORD@127.0.0.1:$PG_PORT/forebay?sslmode=verify-full&sslrootcert=$SCRATCH/pki/ca.pem"
      ;;
    slate)
      start_s3 "$SCRATCH/s3"
      make_bucket "$SCRATCH/s3" bucket
      ENGINE=slate:s3://bucket/meta
      ;;
  esac
}

# owner: the name of the server that has the volume.
owner() {
  local name port
  port=$("$FOREBAY" meta status --json --meta "$(addresses)" | python3 -c 'import json, sys
print((json.load(sys.stdin)["volumes"][0]["owner"] or "").rpartition(":")[2])')
  for name in "${!META_PORT[@]}"; do [ "${META_PORT[$name]}" != "$port" ] || echo "$name"; done
}
has_owner() { OWNER=$(owner) && [ -n "$OWNER" ]; }
# both_run: over an engine with many writers both are known; over one with one writer the other stands by, and is not.
both_run() {
  case $KIND in
    postgres) [ "$("$FOREBAY" meta status --json --meta "$(addresses)" | python3 -c 'import json, sys; print(len(json.load(sys.stdin)["servers"]))')" = 2 ] ;;
    slate) grep -q "stands by" "$SCRATCH/meta-$([ "$OWNER" = a ] && echo b || echo a).log" ;;
  esac
}

engine_of "$KIND"
META_PORT[b]=$(free_port)
start_cluster "$ENGINE"
start_meta b "$ENGINE"
mount_shared one
mount_shared two
for ((round = 1; round <= ROUNDS; round++)); do
  wait_for 60 "an owner" has_owner
  wait_for 60 "both servers" both_run
  # At any time between two beats.
  sleep "5.$(printf %03d $((RANDOM % 1000)))"
  python3 - "$SCRATCH/one" "$SCRATCH/two" "${META_PID[$OWNER]}" "$round" <<'PYTHON'
import os, signal, sys, threading, time
one, two, pid, number = sys.argv[1:]
os.mkdir(f"{one}/before-{number}")
took = {}
def change(mount):
    path = f"{mount}/after-{number}-{os.path.basename(mount)}"
    os.mkdir(path)
    handle = os.open(path, os.O_RDONLY)
    os.fsync(handle)
    took[mount] = time.monotonic() - began
began = time.monotonic()
os.kill(int(pid), signal.SIGKILL)
threads = [threading.Thread(target=change, args=(mount,)) for mount in (one, two)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print(" ".join(f"{took[mount]:.2f}" for mount in (one, two)), "s", flush=True)
PYTHON
  wait "${META_PID[$OWNER]}" 2>/dev/null || true
  start_meta "$OWNER" "$ENGINE"
done
end_cluster one two
case $KIND in postgres) stop_postgres fast ;; slate) stop_s3 ;; esac
