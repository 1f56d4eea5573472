# What every case of a cluster starts with, after prelude.sh. Not a case itself.
#
# A case has one engine, one store, any number of servers and mounts, all on this machine's loopback and of this run. Everything is started here,
# so that it is named by SCRATCH on its command line and tools/test ends what a failed case leaves.

VOLUME_NAME=shared
declare -A META_PID META_PORT

# Not one that the kernel gives to connections (from 32768 on): one of those is taken before a server that was killed is back on it. Nor one that was given before: who
# got it may not listen yet.
free_port() {
  python3 - "${FOREBAY_PORTS:-16000-23999}" "$SCRATCH/ports" <<'PYTHON'
import fcntl, random, socket, sys
first, last = map(int, sys.argv[1].split("-"))
given = open(sys.argv[2], "a+")
fcntl.flock(given, fcntl.LOCK_EX)
given.seek(0)
taken = set(map(int, given))
while True:
    with socket.socket() as tried:
        port = random.randint(first, last)
        if port in taken:
            continue
        try:
            tried.bind(("127.0.0.1", port))
        except OSError:
            continue
        print(port, file=given)
        print(port)
        break
PYTHON
}

# start_meta NAME [ENGINE]: a metadata server on a port of its own; started again, on the same one.
start_meta() {
  local name=$1 engine=${2:-dir:$SCRATCH/engine}
  META_PORT[$name]=${META_PORT[$name]:-$(free_port)}
  "$FOREBAY" meta --engine "$engine" --listen "127.0.0.1:${META_PORT[$name]}" --insecure </dev/null >>"$SCRATCH/meta-$name.log" 2>&1 &
  META_PID[$name]=$!
}

# addresses: of all servers, as URLs and --meta take them.
addresses() {
  local name list=
  for name in "${!META_PORT[@]}"; do list=${list:+$list,}127.0.0.1:${META_PORT[$name]}; done
  echo "$list"
}

serves() { "$FOREBAY" volume list --meta "$(addresses)"; }

meta_serves() { wait_for 60 "the metadata servers" serves; }

kill_meta() { kill -KILL "${META_PID[$1]}" && { wait "${META_PID[$1]}" 2>/dev/null || true; }; }

# start_cluster [ENGINE [STORE]]: a server, and a volume.
start_cluster() {
  start_meta a "${1:-}"
  meta_serves
  mkdir -p "$SCRATCH/store"
  "$FOREBAY" volume create "$VOLUME_NAME" --store "${2:-file://$SCRATCH/store}" --meta "$(addresses)" >"$SCRATCH/volume.log" 2>&1 ||
    { cat "$SCRATCH/volume.log" >&2; fail "volume create"; }
}

# mount_shared NAME [OPTION...]: mounts the volume at $SCRATCH/NAME.
mount_shared() {
  local point=$SCRATCH/$1
  shift
  mkdir -p "$point"
  "$FOREBAY" mount "forebay://$(addresses)/$VOLUME_NAME" "$point" --insecure -o allow_other "$@" \
    </dev/null >"$SCRATCH/mount.log" 2>&1 || { cat "$SCRATCH/mount.log" >&2; fail "mount $point"; }
  mountpoint -q "$point" || fail "mount returned, but $point is not mounted"
}

# end_cluster MOUNT...: unmounts, and ends the servers in order.
end_cluster() {
  local name
  for name in "$@"; do umount_volume "$SCRATCH/$name"; done
  for name in "${!META_PID[@]}"; do
    kill -TERM "${META_PID[$name]}" 2>/dev/null || continue
    wait "${META_PID[$name]}" || { tail -n 20 "$SCRATCH/meta-$name.log" >&2; fail "server $name did not end in order"; }
  done
}

show_logs() {
  tail -n 30 "$SCRATCH"/meta-*.log >&2 || true
  # Of this case's mounts: where they log is named by where they are.
  tail -n 15 /var/log/forebay/*"${SCRATCH//\//-}"-*.log >&2 || true
}
trap '[ $? -eq 0 ] || show_logs' EXIT
