# Proxies of group fast on machines of their own (MEMBERS), each with a disk $SCRATCH/disk-NAME, and a volume of class replica. After site.bash; not a case itself.

declare -A PROXY_PID

# On a machine that nothing happens to: commands go on to whom a server names, and from outside of the namespaces they wait in vain for each of those.
# shellcheck disable=SC2046
ask() { on db "$FOREBAY" "$@" --meta "$(servers)" $(tls_of "${NODES[0]}"); }
of_group() { ask group show fast --json | python3 -c "import json, sys; members = json.load(sys.stdin)['members']; print($1)"; }
has_members() { [ "$(of_group 'len(members)')" = "$1" ]; }
# The store has all that was synced, by what the owner knows: members say what they have a second later.
is_clean() { ask group show fast --json | python3 -c 'import json, sys
segments = json.load(sys.stdin)["segments"]
sys.exit(segments["open"]["bytes"] + segments["sealed"]["bytes"] > 0 or bool(segments["not_known"]))'; }

start_proxy() {
  # shellcheck disable=SC2046
  run_on "$1" "$FOREBAY" proxy --meta "$(servers)" --group fast --cache-dir "$SCRATCH/disk-$1/member" --cache-size "${CACHE_SIZE:-256MiB}" \
    --listen "$(address_of "$1"):7400" $(tls_of "$1") </dev/null >>"$SCRATCH/$1.log" 2>&1 &
  PROXY_PID[$1]=$!
}
kill_proxy() { kill -KILL "${PROXY_PID[$1]}"; wait "${PROXY_PID[$1]}" 2>/dev/null || true; }

# start_group: all of them, a volume that is written over them, and its mounts.
start_group() {
  local name
  ask group create fast >/dev/null
  for name in "${MEMBERS[@]}"; do start_proxy "$name"; done
  wait_for 60 "all members" has_members "${#MEMBERS[@]}"
  ask volume create shared --store s3://bucket/shared --endpoint "$AWS_ENDPOINT_URL" --region "$AWS_REGION" --group fast --durability replica >"$SCRATCH/volume.log" 2>&1 ||
    { cat "$SCRATCH/volume.log" >&2; fail "volume create"; }
  ask token create shared >"$SCRATCH/token" 2>"$SCRATCH/token.log"
  for name in "${NODES[@]}"; do mount_node "$name"; done
}

# end_group: in order.
end_group() {
  local name
  for name in "${MEMBERS[@]}"; do kill -TERM "${PROXY_PID[$name]}"; done
  for name in "${MEMBERS[@]}"; do wait "${PROXY_PID[$name]}" || fail "$name did not end in order"; done
}
