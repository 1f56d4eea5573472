#!/usr/bin/env bash
# A group of three proxies, each a process, before a store that is 20 ms away: what one mount has read another one reads from the group, with no request to
# the store; a proxy is stopped, killed, drained and joins again, all of them end, and each read has the right bytes and no error. Bad set-ups are refused
# in a line.
. "$TESTS/prelude.sh"
. "$TESTS/cluster/cluster.bash"
FILES=${FILES:-24}
declare -A PROXY_PID PROXY_AT
show_proxies() { [ $? -eq 0 ] || { show_logs; tail -n 15 "$SCRATCH"/proxy-*.log >&2 || true; }; }
trap show_proxies EXIT

export AWS_ACCESS_KEY_ID=a AWS_SECRET_ACCESS_KEY=b AWS_REGION=eu-central-1
coproc STORE { exec "$FOREBAY" late-store 20; }
exec {ask_store}>&"${STORE[1]}" {store_says}<&"${STORE[0]}"
of_store() { local line; echo "$1" >&"$ask_store"; read -r line <&"$store_says"; echo "${line//\"/}"; }
STORE_AT=$(of_store address)

ask() { "$FOREBAY" "$@" --meta "$(addresses)"; }
members() { ask group show fast --json | python3 -c 'import json, sys; print(len(json.load(sys.stdin)["members"]))'; }
has_members() { [ "$(members)" = "$1" ]; }
# read_from MOUNT WHERE: bytes that the mount had from node, group or store.
read_from() { "$FOREBAY" status "$SCRATCH/$1" --json | python3 -c 'import json, sys
s = json.load(sys.stdin); s = s[0] if isinstance(s, list) else s
print(s["read_bytes"][sys.argv[1]])' "$2"; }

# start_proxy NAME [OPTION...]
start_proxy() {
  local name=$1
  shift
  PROXY_AT[$name]=${PROXY_AT[$name]:-127.0.0.1:$(free_port)}
  "$FOREBAY" proxy --meta "$(addresses)" --group fast --cache-dir "$SCRATCH/proxy-$name" --cache-size 256MiB --listen "${PROXY_AT[$name]}" \
    --zone "$name" --insecure "$@" </dev/null >>"$SCRATCH/proxy-$name.log" 2>&1 &
  PROXY_PID[$name]=$!
}
end_proxy() { kill -TERM "${PROXY_PID[$1]}"; wait "${PROXY_PID[$1]}" || fail "proxy $1 did not end in order"; }
kill_proxy() { kill -KILL "${PROXY_PID[$1]}"; wait "${PROXY_PID[$1]}" 2>/dev/null || true; }
# refused_proxy WORDS OPTION...: a proxy that does not start, and says why in a line.
refused_proxy() {
  local words=$1 said
  shift
  if said=$(timeout 60 "$FOREBAY" proxy --meta "$(addresses)" --listen 127.0.0.1:0 --insecure "$@" 2>&1 >/dev/null); then fail "started: $*"; fi
  said=$(grep '^forebay: ' <<<"$said" || true)
  [[ $(wc -l <<<"$said") = 1 && $said == *"$words"* ]] || fail "proxy $*: '$said' has not '$words'"
}

start_meta a
meta_serves
ask volume create "$VOLUME_NAME" --store s3://bucket/v --endpoint "http://$STORE_AT" --region eu-central-1 >/dev/null
refused_proxy "no group 'fast'" --group fast --cache-dir "$SCRATCH/none" --cache-size 256MiB
ask group create fast >/dev/null
ask group create slow >/dev/null
for name in a b c; do start_proxy "$name"; done
wait_for 60 "three members" has_members 3
ask volume set "$VOLUME_NAME" --group fast | grep -q '^group  *fast$' || fail "volume set does not show the group"
[ ! -e "$SCRATCH/none" ] || fail "a proxy that was refused has made its directory"

# What writes does not fill the group; what reads does.
mount_shared writer
python3 - "$SCRATCH/writer" "$FILES" <<'EOF'
import random, sys
for number in range(int(sys.argv[2])):
    bytes_of = random.Random(number).randbytes(2_500_000 + number * 70_001)
    with open(f"{sys.argv[1]}/{number}", "wb") as file:
        file.write(bytes_of)
EOF
sync "$SCRATCH/writer"/*
(cd "$SCRATCH/writer" && sha256sum -- *) >"$SCRATCH/sums"
umount_volume "$SCRATCH/writer"
# has_right_bytes MOUNT
has_right_bytes() { (cd "$SCRATCH/$1" && sha256sum --quiet -c "$SCRATCH/sums") || fail "$1 reads other bytes than were written"; }

mount_shared one
has_right_bytes one
total=$(du -sb --apparent-size "$SCRATCH/one" | cut -f1)
before=$(of_store reads)
mount_shared two
has_right_bytes two
after=$(of_store reads)
group=$(($(read_from two group) + $(read_from two node)))
[ "$after" = "$before" ] || [ $(((after - before) * 20)) -lt "$before" ] || fail "the second mount made $((after - before)) requests to the store, the first one $before"
[ "$group" -ge $((total * 9 / 10)) ] || fail "the second mount had $group of $total bytes from the group"
used=$(ask group show fast --json | python3 -c 'import json, sys; print(sum(m["used_bytes"] > 0 for m in json.load(sys.stdin)["members"]))')
[ "$used" = 3 ] || fail "$used of three proxies have something cached"
umount_volume "$SCRATCH/one"
umount_volume "$SCRATCH/two"

# One is stopped, then goes on; one is killed: nobody sees more than time.
for harm in STOP KILL; do
  mount_shared "with$harm"
  (cd "$SCRATCH/with$harm" && sha256sum --quiet -c "$SCRATCH/sums" >"$SCRATCH/$harm.log" 2>&1) &
  reading=$!
  sleep 0.1
  kill -"$harm" "${PROXY_PID[b]}"
  wait "$reading" || { cat "$SCRATCH/$harm.log" >&2; fail "reads failed when a proxy got SIG$harm"; }
  umount_volume "$SCRATCH/with$harm"
  mount_shared "after$harm"
  has_right_bytes "after$harm"
  umount_volume "$SCRATCH/after$harm"
  if [ "$harm" = STOP ]; then kill -CONT "${PROXY_PID[b]}"; fi
done
wait "${PROXY_PID[b]}" 2>/dev/null || true
wait_for 60 "the killed one is counted out" has_members 2
start_proxy b
wait_for 60 "it joins again with what it has" has_members 3

# A member drains, and goes for good; another leaves in order and joins again.
ask group drain fast "${PROXY_AT[c]}" >/dev/null
goes() { ask group remove fast "${PROXY_AT[c]}"; }
wait_for 60 "the drained one goes" goes
wait "${PROXY_PID[c]}" && fail "a removed proxy ended as if nothing were" || true
grep -q "was removed" "$SCRATCH/proxy-c.log" || fail "a removed proxy does not say so"
start_proxy c
wait "${PROXY_PID[c]}" && fail "a removed member joined again" || true
end_proxy a
has_members 1 || fail "one that ended in order is still a member"
start_proxy a
wait_for 60 "it joins again" has_members 2

# Directories of others.
mkdir "$SCRATCH/foreign" && touch "$SCRATCH/foreign/x"
refused_proxy "holds 'x'" --group fast --cache-dir "$SCRATCH/foreign" --cache-size 256MiB
refused_proxy "another group" --group slow --cache-dir "$SCRATCH/proxy-c" --cache-size 256MiB
refused_proxy "in use by another proxy" --group fast --cache-dir "$SCRATCH/proxy-a" --cache-size 256MiB
cp -a "$SCRATCH/proxy-c" "$SCRATCH/copy"
refused_proxy "is a copy of the directory" --group fast --cache-dir "$SCRATCH/copy" --cache-size 256MiB
refused_proxy "too small" --group fast --cache-dir "$SCRATCH/small" --cache-size 1MiB

# With nobody there the store is read.
for name in a b; do end_proxy "$name"; done
mount_shared alone
has_right_bytes alone
[ "$(read_from alone store)" -ge $((total * 9 / 10)) ] || fail "without members the store is not read"
ask group show fast | grep -q 'none: volumes are read from the store' || fail "group show does not tell of no members"
end_cluster alone
kill "$STORE_PID"
echo "$before requests to the store for the first mount, $((after - before)) for the second, which had $group of $total bytes from the group"
