#!/usr/bin/env bash
# Where bytes may rest, with real processes: a volume of class replica over two proxies, and a group that has no members. What is confined to that group, or excluded from the volume's, is on no
# disk of proxies or of a mount: fsync waits for the store, mounts read it from there. What is placed on the volume's group comes into its caches. What cannot be is refused in a line.
. "$TESTS/prelude.sh"
. "$TESTS/cluster/cluster.bash"
. "$TESTS/cluster/proxies.bash"

late_store 2
start_meta a
meta_serves
ask group create fast >/dev/null
ask group create ward >/dev/null
for name in a b; do start_proxy "$name"; done
wait_for 60 "two members" has_members 2
ask volume create "$VOLUME_NAME" --store s3://bucket/v --endpoint "http://$STORE_AT" --region eu-central-1 --group fast --durability replica >/dev/null
mount_shared one

policy() { ask policy "$@"; }
# says WORDS COMMAND...: it fails in one line with these words.
says() {
  local words=$1 said
  shift
  if said=$("$@" 2>&1); then fail "it was not refused: $*"; fi
  grep -q -- "$words" <<<"$said" || fail "refused without '$words': $said"
  [ "$(wc -l <<<"$said")" = 1 ] || fail "it takes more than a line: $said"
}
durability() { policy show "$1" --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["durability"])'; }
# on_disk FILE DIR...: whether the middle of a file, which is random, is in any file below these directories.
on_disk() { python3 - "$@" <<'P'
import os, sys
with open(sys.argv[1], "rb") as file:
    whole = file.read()
marker = whole[len(whole) // 2 :][:64]
def has(path):
    with open(path, "rb") as file:
        tail = b""
        while part := file.read(1 << 24):
            if marker in tail + part:
                return True
            tail = part[-64:]
    return False
sys.exit(not any(has(os.path.join(at, name)) for top in sys.argv[2:] for at, _, names in os.walk(top) for name in names))
P
}
write_synced() { dd if=/dev/urandom of="$1" bs=900k count=1 conv=fsync status=none; }

for name in secret hidden plain placed aside; do mkdir "$SCRATCH/one/$name"; done
policy set "$SCRATCH/one/secret" --confine-to ward | grep -q "of the members of the group 'ward'" || fail "set does not say it"
policy set "$SCRATCH/one/hidden" --exclude-from fast >/dev/null
for name in secret hidden; do [ "$(durability "$SCRATCH/one/$name")" = object ] || fail "$name is of $(durability "$SCRATCH/one/$name")"; done
[ "$(durability "$SCRATCH/one/plain")" = replica:2 ] || fail "plain is of another class"
grep -q "^policy .*confined to ward, said by itself" <<<"$(policy show "$SCRATCH/one/secret")" || fail "$(policy show "$SCRATCH/one/secret")"

# fsync waits for the store, and no proxy has seen a byte; of what nothing was said of, one has.
for name in secret/a hidden/a plain/a; do write_synced "$SCRATCH/one/$name"; done
proxies=("$SCRATCH/proxy-a" "$SCRATCH/proxy-b")
on_disk "$SCRATCH/one/plain/a" "${proxies[@]}" || fail "what nothing was said of is on no proxy's disk"
kill -STOP "$STORE_PID"
timeout 60 dd if=/dev/urandom of="$SCRATCH/one/plain/b" bs=100k count=1 conv=fsync status=none || { kill -CONT "$STORE_PID"; fail "fsync beside it waited for the store"; }
write_synced "$SCRATCH/one/secret/b" &
writer=$!
sleep 3
if ! kill -0 "$writer" 2>/dev/null; then kill -CONT "$STORE_PID"; fail "fsync of what is confined elsewhere did not wait for the store"; fi
kill -CONT "$STORE_PID"
wait "$writer" || fail "fsync failed"
for name in secret/a secret/b hidden/a; do if on_disk "$SCRATCH/one/$name" "${proxies[@]}"; then fail "$name is on a proxy's disk"; fi; done

# Another mount, with a cache on its disk: what may be there is, and the rest it has from the store.
(cd "$SCRATCH/one" && sha256sum secret/* hidden/* plain/*) >"$SCRATCH/sums"
mount_shared two --cache-dir "$SCRATCH/cache-two" --cache-size 256MiB
(cd "$SCRATCH/two" && sha256sum -c --quiet "$SCRATCH/sums") || fail "files differ"
if "$FOREBAY" warm "$SCRATCH/two/secret" --into group </dev/null >"$SCRATCH/warm.log" 2>&1; then fail "it was brought where it may not be"; fi
grep -q "on no disk there" "$SCRATCH/warm.log" || fail "$(cat "$SCRATCH/warm.log")"
for name in secret/a secret/b hidden/a; do
  if on_disk "$SCRATCH/two/$name" "${proxies[@]}" "$SCRATCH/cache-two"; then fail "$name is on a disk after it was read"; fi
done

# What is placed comes into the caches by itself.
policy set "$SCRATCH/two/placed" --place-on fast --durability object >/dev/null
head -c 3000000 /dev/urandom >"$SCRATCH/two/placed/a"
sync "$SCRATCH/two/placed/a"
# The store has it; any change of a policy has members look again.
policy set "$SCRATCH/two/placed" --durability object >/dev/null
is_placed() { policy show "$SCRATCH/two/placed" --json | python3 -c 'import json, sys
k = json.load(sys.stdin)["kept"]
sys.exit(not (k and k["whole"] and k["kept_bytes"] == k["wanted_bytes"] >= 3000000))'; }
wait_for_passes two "what is placed is there" is_placed

# What cannot be is refused.
says "no group 'none'" policy set "$SCRATCH/two/plain" --confine-to none
says "confined to the group 'ward' and excluded from it" policy set "$SCRATCH/two/plain" --confine-to ward --exclude-from ward
says "in whose caches it then cannot be" policy set "$SCRATCH/two/secret" --pin
says "in whose caches it then cannot be" policy set "$SCRATCH/two/placed" --exclude-from fast
says "nobody would read there" policy set "$SCRATCH/two/plain" --place-on ward
policy unset "$SCRATCH/two/secret" --confine-to >/dev/null
[ "$(durability "$SCRATCH/two/secret/a")" = replica:2 ] || fail "what was unset counts still"

umount_volume "$SCRATCH/one"
umount_volume "$SCRATCH/two"
for name in a b; do end_proxy "$name"; done
mount_shared alone
(cd "$SCRATCH/alone" && sha256sum -c --quiet "$SCRATCH/sums") || fail "files differ"
end_cluster alone
kill "$STORE_PID"
