# What every case with proxies starts with, after cluster.bash. Not a case itself.

declare -A PROXY_PID PROXY_AT PROXY_DIR
show_proxies() { [ $? -eq 0 ] || { show_logs; tail -n 15 "$SCRATCH"/proxy-*.log >&2 || true; }; }
trap show_proxies EXIT

# late_store MS: a store of its own that is so far away; sets STORE_AT and STORE_PID. of_store QUESTION: see `forebay late-store`.
late_store() {
  export AWS_ACCESS_KEY_ID=a AWS_SECRET_ACCESS_KEY=b AWS_REGION=eu-central-1
  coproc STORE { exec "$FOREBAY" late-store "$1"; }
  exec {ask_store}>&"${STORE[1]}" {store_says}<&"${STORE[0]}"
  STORE_AT=$(of_store address)
}
of_store() { local line; echo "$1" >&"$ask_store"; read -r line <&"$store_says"; echo "${line//\"/}"; }

ask() { "$FOREBAY" "$@" --meta "$(addresses)"; }
members() { ask group show fast --json | python3 -c 'import json, sys; print(len(json.load(sys.stdin)["members"]))'; }
has_members() { [ "$(members)" = "$1" ]; }
# is_clean: the store has all that was synced. By what the owner knows, which is so when an fsync returns; members say what they have a second later.
is_clean() { ask group show fast --json | python3 -c 'import json, sys
segments = json.load(sys.stdin)["segments"]
sys.exit(segments["open"]["bytes"] + segments["sealed"]["bytes"] > 0 or bool(segments["not_known"]))'; }

# read_from MOUNT WHERE: bytes that the mount had from node, group or store.
read_from() { "$FOREBAY" status "$SCRATCH/$1" --json | python3 -c 'import json, sys
s = json.load(sys.stdin); s = s[0] if isinstance(s, list) else s
print(s["read_bytes"][sys.argv[1]])' "$2"; }

# knows_group MOUNT: the mount was told of the group; before that it reads from the store and writes to it.
knows_group() { [ "$(status_of "$SCRATCH/$1" group)" = "${PROXY_GROUP:-fast}" ]; }

# reads_without_store MOUNT COMMAND...: a new mount reads by the command, and nobody asks the store. A member that is late, as one may be on a busy machine, is not waited for: then another
# new mount does. The last one stays.
reads_without_store() {
  local mount=$1 before asked pass
  shift
  for pass in $(seq 20); do
    before=$(of_store reads)
    mount_shared "$mount"
    wait_for 60 "$mount to know the group" knows_group "$mount"
    "$@"
    asked=$(($(of_store reads) - before))
    [ "$asked" -gt 0 ] || return 0
    umount_volume "$SCRATCH/$mount"
  done
  fail "the store was asked in each of $pass readings, in the last one $asked times"
}

# wait_for_passes MOUNT WHAT COMMAND...: waits for what members bring about when they look through what is wanted of them. One that failed at something looks again after a minute, or
# within ten seconds of a change of any policy: that of the mount's directory `aside` is changed now and then.
ASIDE=set CHANGED=0
or_changes() {
  ! "${@:2}" || return 0
  [ "$SECONDS" -ge $((CHANGED + 15)) ] || return 1
  CHANGED=$SECONDS
  case $ASIDE in
    set) ask policy set "$SCRATCH/$1/aside" --durability object && ASIDE=unset ;;
    unset) ask policy unset "$SCRATCH/$1/aside" && ASIDE=set ;;
  esac
  return 1
}
wait_for_passes() {
  CHANGED=$SECONDS
  # A pass begins within ten seconds of a change, and is told of ten seconds later; each after one that failed at a fetch costs as much again.
  wait_for 180 "$2" or_changes "$1" "${@:3}"
}

# start_proxy NAME [OPTION...]: a member of PROXY_GROUP, or of group fast, with a cache of PROXY_CACHE, in a directory of its own or PROXY_DIR[NAME]; started again, at the same address.
start_proxy() {
  local name=$1
  shift
  PROXY_AT[$name]=${PROXY_AT[$name]:-127.0.0.1:$(free_port)}
  "$FOREBAY" proxy --meta "$(addresses)" --group "${PROXY_GROUP:-fast}" --cache-dir "${PROXY_DIR[$name]:-$SCRATCH/proxy-$name}" --cache-size "${PROXY_CACHE:-256MiB}" \
    --listen "${PROXY_AT[$name]}" --zone "$name" --insecure "$@" </dev/null >>"$SCRATCH/proxy-$name.log" 2>&1 &
  PROXY_PID[$name]=$!
}
# replica_group MS: a store so far away, a server, the group fast of members a, b and c, and the volume, of class replica over it.
replica_group() {
  local name
  late_store "$1"
  start_meta a
  meta_serves
  ask group create fast >/dev/null
  for name in a b c; do start_proxy "$name"; done
  wait_for 60 "three members" has_members 3
  ask volume create "$VOLUME_NAME" --store s3://bucket/v --endpoint "http://$STORE_AT" --region eu-central-1 --group fast --durability replica >/dev/null
}
end_proxy() { kill -TERM "${PROXY_PID[$1]}"; wait "${PROXY_PID[$1]}" || fail "proxy $1 did not end in order"; }
kill_proxy() { kill -KILL "${PROXY_PID[$1]}"; wait "${PROXY_PID[$1]}" 2>/dev/null || true; }
