#!/usr/bin/env bash
# A group of three proxies, each a process, before a store that is 20 ms away: what one mount has read another one reads from the group, with no request to
# the store; a proxy is stopped, killed, drained and joins again, all of them end, and each read has the right bytes and no error. Bad set-ups are refused
# in a line.
. "$TESTS/prelude.sh"
. "$TESTS/cluster/cluster.bash"
. "$TESTS/cluster/proxies.bash"
FILES=${FILES:-24}

late_store 20


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
reads_without_store two has_right_bytes two
group=$(($(read_from two group) + $(read_from two node)))
[ "$group" -ge $((total * 9 / 10)) ] || fail "the second mount had $group of $total bytes from the group"
# What a member has is said with its next renewal. Which of them has how much is chance: their ids are, and the pieces are few.
have_all() { [ "$(ask group show fast --json | python3 -c 'import json, sys; print(sum(m["used_bytes"] for m in json.load(sys.stdin)["members"]))')" -ge $((total * 9 / 10)) ]; }
wait_for 60 "the proxies to say that they have it cached" have_all
umount_volume "$SCRATCH/one"
umount_volume "$SCRATCH/two"

# Brought into the group, and once more for nothing; brought here from there, with few requests to the store.
mount_three() {
  mount_shared three --cache-dir "$SCRATCH/cache-three" --cache-size 256MiB
  wait_for 60 "three to know the group" knows_group three
}
mount_three
warm() { timeout 120 "$FOREBAY" warm "$SCRATCH/three" "$@" </dev/null >"$SCRATCH/warm.out" 2>&1 || { cat "$SCRATCH/warm.out" >&2; fail "warm $*"; }; }
# What a member that was late did not take is brought by the next one.
for pass in $(seq 20); do
  warm_before=$(of_store reads)
  warm --into group
  ! grep -q ' 0 B fetched' "$SCRATCH/warm.out" || break
done
grep -q ' 0 B fetched' "$SCRATCH/warm.out" || { cat "$SCRATCH/warm.out" >&2; fail "in each of $pass passes the group was given what it has"; }
members_gave() { echo $(($(read_from three group) + $(read_from three node))); }
[ "$(members_gave)" = 0 ] || fail "what was brought into the group went through the mount"
# A member that is late on a busy machine is not waited for; most of it comes from there, or does so for a new mount with an empty cache.
came_from_group() { [ $((asked * 2)) -lt "$before" ] && [ $((warm_group * 2)) -ge "$total" ]; }
for pass in $(seq 20); do
  if [ "$pass" -gt 1 ]; then
    umount_volume "$SCRATCH/three"
    rm -rf "$SCRATCH/cache-three"
    mount_three
    warm_before=$(of_store reads)
  fi
  warm --into here
  asked=$(($(of_store reads) - warm_before))
  warm_group=$(members_gave)
  ! came_from_group || break
done
came_from_group || fail "in the last of $pass passes $asked requests for what the group has, $before before, and $warm_group of $total bytes came from the group"
has_right_bytes three
[ "$(members_gave)" = "$warm_group" ] || fail "what is here was fetched again"
umount_volume "$SCRATCH/three"
mount_shared bare
! timeout 60 "$FOREBAY" warm "$SCRATCH/bare" --into here </dev/null >"$SCRATCH/warm.out" 2>&1 || fail "a mount without a cache has something brought"
grep -q 'has no cache on this machine' "$SCRATCH/warm.out" || { cat "$SCRATCH/warm.out" >&2; fail "no word of a cache"; }
umount_volume "$SCRATCH/bare"

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
# At once, unless it could not tell the group; the other one is there, or back if it was late.
if [[ $(ask group show fast --json) == *"\"${PROXY_AT[a]}\""* ]]; then
  grep -q 'the group counts this member out by itself' "$SCRATCH/proxy-a.log" || fail "one that ended in order is still a member"
fi
wait_for 60 "the other one to be the only member" has_members 1
start_proxy a
wait_for 60 "it joins again" has_members 2

# Directories of others.
mkdir "$SCRATCH/foreign" && touch "$SCRATCH/foreign/x"
refused_proxy "holds 'x'" --group fast --cache-dir "$SCRATCH/foreign" --cache-size 256MiB
refused_proxy "another group" --group slow --cache-dir "$SCRATCH/proxy-c" --cache-size 256MiB
refused_proxy "in use by another proxy" --group fast --cache-dir "$SCRATCH/proxy-a" --cache-size 256MiB
cp -a "$SCRATCH/proxy-c" "$SCRATCH/copy"
refused_proxy "is a copy of the directory" --group fast --cache-dir "$SCRATCH/copy" --cache-size 256MiB
refused_proxy "1..=1048576" --group fast --cache-dir "$SCRATCH/none" --cache-size 256MiB --weight 0
refused_proxy "is no zone" --group fast --cache-dir "$SCRATCH/none" --cache-size 256MiB --zone "$(printf 'z%.0s' $(seq 300))"
refused_proxy "is no zone" --group fast --cache-dir "$SCRATCH/none" --cache-size 256MiB --zone ''
[ ! -e "$SCRATCH/none" ] || fail "a proxy that was refused has made its directory"
touch "$SCRATCH/file"
refused_proxy "cannot make the directory" --group fast --cache-dir "$SCRATCH/file" --cache-size 256MiB
mkdir "$SCRATCH/read-only"
mount -t tmpfs -o ro,size=1m none "$SCRATCH/read-only"
refused_proxy "Read-only file system" --group fast --cache-dir "$SCRATCH/read-only/proxy" --cache-size 256MiB
umount "$SCRATCH/read-only"
cp -a "$SCRATCH/proxy-c" "$SCRATCH/damaged" && echo garbage >"$SCRATCH/damaged/forebay-proxy"
refused_proxy "is damaged" --group fast --cache-dir "$SCRATCH/damaged" --cache-size 256MiB
# A cache of which bytes are others: they are not served. All of it is in one.
end_proxy a
mount_shared all-at-b
has_right_bytes all-at-b
umount_volume "$SCRATCH/all-at-b"
end_proxy b
python3 - "$SCRATCH/proxy-b/cache" <<'PYTHON'
import glob, os, random, sys
source = random.Random(3)
for name in glob.glob(sys.argv[1] + "/*.chunks"):
    with open(name, "r+b") as slab:
        for _ in range(200):
            slab.seek(source.randrange(os.path.getsize(name)))
            slab.write(source.randbytes(8))
PYTHON
metrics=127.0.0.1:$(free_port)
start_proxy b --metrics "$metrics"
wait_for 60 "it joins with a damaged cache" has_members 1
mount_shared damaged-cache
has_right_bytes damaged-cache
python3 - "$metrics" <<'PYTHON' || fail "no damage was found in the cache"
import re, sys, urllib.request
said = urllib.request.build_opener(urllib.request.ProxyHandler({})).open(f"http://{sys.argv[1]}/metrics").read().decode()
sys.exit(int(re.search(r"^forebay_proxy_corrupt_total\{.*\} (\d+)$", said, re.M)[1]) == 0)
PYTHON
umount_volume "$SCRATCH/damaged-cache"
start_proxy a
wait_for 60 "the other one joins again" has_members 2
refused_proxy "too small" --group fast --cache-dir "$SCRATCH/small" --cache-size 1MiB

# With nobody there the store is read.
for name in a b; do end_proxy "$name"; done
mount_shared alone
has_right_bytes alone
[ "$(read_from alone store)" -ge $((total * 9 / 10)) ] || fail "without members the store is not read"
ask group show fast | grep -q 'none: volumes are read from the store' || fail "group show does not tell of no members"
end_cluster alone
kill "$STORE_PID"
echo "$before requests to the store for the first mount, none for another one, which had $group of $total bytes from the group"
