#!/usr/bin/env bash
# `forebay warm` of a volume on this machine, before a store that is 5 ms away, once for a while a second: what it brings is read without a request to the store, what is here is
# not fetched again, small files cost few requests, a command that is killed is gone on with, and what cannot be brought is named.
. "$TESTS/prelude.sh"
export AWS_ACCESS_KEY_ID=a AWS_SECRET_ACCESS_KEY=b AWS_REGION=eu-central-1
coproc STORE { exec "$FOREBAY" late-store 5; }
exec {ask_store}>&"${STORE[1]}" {store_says}<&"${STORE[0]}"
of_store() { local line; echo "$1" >&"$ask_store"; read -r line <&"$store_says"; echo "${line//\"/}"; }
# The way there, which may become long.
find_far_link
mkfifo "$SCRATCH/way"
exec {way}<>"$SCRATCH/way"
bash -c 'exec -a "$0" "$@"' "$SCRATCH/way-there" "$FAR_LINK" 127.0.0.1:0 "$(of_store address)" 0 <&"$way" >"$SCRATCH/way.log" &
WAY=$!
has_said_where() { [ -s "$SCRATCH/way.log" ]; }
wait_for 60 "the way to the store" has_said_where
STORE_AT=$(head -n 1 "$SCRATCH/way.log")
said_so() { grep -cx "delay $1" "$SCRATCH/way.log" || true; }
way_takes() { # MILLISECONDS, one way
  local before
  before=$(said_so "$1")
  echo "delay $1" >&"$way"
  says_so() { [ "$(said_so "$1")" -gt "$2" ]; }
  wait_for 60 "a way of $1 ms" says_so "$1" "$before"
}
# Requests of the mount for bytes of objects; the volume's own work in the background makes others.
gets() { "$FOREBAY" stats "$SCRATCH/mount" --once --json | python3 -c 'import json, sys; print(sum(entry["calls"] for entry in json.load(sys.stdin)["store"] if entry["name"] == "get_range"))'; }
warm() { timeout 120 "$FOREBAY" warm "$@" </dev/null >"$SCRATCH/warm.out" 2>"$SCRATCH/warm.err"; }
warmed() { warm "$@" || { cat "$SCRATCH"/warm.* >&2; fail "warm $*"; }; }
has_said() { grep -q -- "$1" "$SCRATCH/warm.out" "$SCRATCH/warm.err" || { cat "$SCRATCH"/warm.* >&2; fail "it does not say: $1"; }; }

create_volume "$SCRATCH/volume" --store s3://bucket/v --endpoint "http://$STORE_AT"
mount_volume "$SCRATCH/volume" "$SCRATCH/mount" --cache-size 256MiB
python3 - "$SCRATCH/mount" <<'PYTHON'
import os, random, sys
root = sys.argv[1]
os.makedirs(root + "/small/deep")
for number in range(2000):
    with open(f"{root}/small/{'deep/' if number % 2 else ''}{number}", "wb") as file:
        file.write(random.Random(number).randbytes(2000 + number))
with open(root + "/large", "wb") as file:
    for _ in range(30):
        file.write(random.randbytes(1 << 20))
with open(root + "/sparse", "wb") as file:
    file.truncate(1 << 40)
    file.seek(1 << 39)
    file.write(random.randbytes(3_000_000))
for name in ("empty", "tiny"):
    with open(f"{root}/{name}", "wb") as file:
        file.write(b"x" * 700 if name == "tiny" else b"")
os.link(root + "/large", root + "/small/linked")
os.symlink("/", root + "/small/elsewhere")
PYTHON
sums() { (cd "$SCRATCH/mount" && find . -type f ! -name sparse -print0 | sort -z | xargs -0 sha256sum; dd if=sparse bs=1M skip=$((1 << 19)) count=3 status=none | sha256sum); }
sums >"$SCRATCH/sums"
umount_volume "$SCRATCH/mount"
rm -rf "$SCRATCH/volume/cache"
mount_volume "$SCRATCH/volume" "$SCRATCH/mount" --cache-size 256MiB

# Small files lie side by side: few requests.
before=$(gets)
warmed "$SCRATCH/mount/small/deep" "$SCRATCH/mount/small"
has_said '^2001 files'
requests=$(($(gets) - before))
[ "$requests" -le 40 ] || fail "2000 small files and a large one took $requests requests"
# All of it, a file of a tebibyte with holes too; then again, without a request.
warmed "$SCRATCH/mount"
has_said '^2004 files, 1.00 TiB'
before=$(gets)
warmed "$SCRATCH/mount"
has_said ' 0 B fetched'
sums | cmp - "$SCRATCH/sums" || fail "other bytes than were written"
[ "$(gets)" = "$before" ] || fail "$(($(gets) - before)) requests for what was brought"

# Killed in the middle, it goes on where it was. On a machine that is busy for seconds it may be over by then: that says nothing, and all of it is done again.
began() { [ "$(gets)" -gt $((begun + 4)) ]; }
for pass in 1 2 3 4 5; do
  umount_volume "$SCRATCH/mount"
  rm -rf "$SCRATCH/volume/cache"
  mount_volume "$SCRATCH/volume" "$SCRATCH/mount" --cache-size 256MiB
  begun=$(gets)
  way_takes 500
  "$FOREBAY" warm "$SCRATCH/mount" </dev/null >"$SCRATCH/warm.out" 2>"$SCRATCH/warm.err" &
  warming=$! ended=0
  wait_for 60 "some requests" began
  kill -KILL "$warming" 2>/dev/null || true
  wait "$warming" 2>/dev/null || ended=$?
  way_takes 0
  case $ended in
    0) ;;
    137) break ;;
    *) cat "$SCRATCH"/warm.* >&2; fail "warm, before it was killed" ;;
  esac
done
[ "$ended" = 137 ] || fail "in all $pass of them it was over before it was killed"
warmed "$SCRATCH/mount"
total=$(($(gets) - begun))
before=$(gets)
warmed "$SCRATCH/mount"
[ "$(gets)" = "$before" ] || fail "something was left out"
[ "$total" -le 100 ] || fail "with an interruption it took $total requests"

# A list; what is not there is named at the end, and the rest is brought.
printf '%s\n' "$SCRATCH/mount/large" '' "$SCRATCH/mount/gone" "$SCRATCH/mount/tiny" "$SCRATCH/sums" >"$SCRATCH/list"
! warm --list "$SCRATCH/list" || fail "a list with what is not there succeeds"
has_said '^2 files'
has_said 'mount/gone'
has_said "sums' is not on a mounted Forebay volume"
"$FOREBAY" warm --list - <<<"$SCRATCH/mount/large" >"$SCRATCH/warm.out" || fail "a list from standard input"
has_said '^1 files'

# Refusals, a line each.
refused "" "$FOREBAY" warm "$SCRATCH"
says "not on a mounted Forebay volume"
refused "" "$FOREBAY" warm "$SCRATCH/mount/none"
says "none"
refused "" "$FOREBAY" warm "$SCRATCH/mount" --into group
says "through no group"
refused "" "$FOREBAY" warm
says "PATH"
create_volume "$SCRATCH/near"
mount_volume "$SCRATCH/near" "$SCRATCH/mount2"
refused "" "$FOREBAY" warm "$SCRATCH/mount2"
says "here already"
umount_volume "$SCRATCH/mount2"

# A cache that has no room for it says so.
umount_volume "$SCRATCH/mount"
rm -rf "$SCRATCH/volume/cache"
mount_volume "$SCRATCH/volume" "$SCRATCH/mount" --cache-size 16MiB
warmed "$SCRATCH/mount"
has_said 'not all of it stays'
umount_volume "$SCRATCH/mount"
kill "$WAY"
