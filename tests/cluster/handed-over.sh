#!/usr/bin/env bash
# Passthrough on a shared volume, with a proxy on the mount's machine (tier 0): sealed files that are opened again are read by the kernel from a plain file, without a request,
# while the proxies, the store and the server are stopped; what others may change is not handed over, and its changes are seen; more files than have room, files that are
# removed here and elsewhere, written to, mapped, damaged on the plain files' disk, a disk without room, a killed proxy, a killed daemon: the bytes are right.
. "$TESTS/prelude.sh"
. "$TESTS/cluster/cluster.bash"
. "$TESTS/cluster/proxies.bash"
late_store 5
export FOREBAY_PROXY_DIR=$SCRATCH/here
start_meta a
meta_serves
ask group create fast >/dev/null
start_proxy a
FOREBAY_PROXY_DIR=$SCRATCH/there start_proxy b
wait_for 60 "two members" has_members 2
ask volume create "$VOLUME_NAME" --store s3://bucket/v --endpoint "http://$STORE_AT" --region eu-central-1 --group fast --durability replica >/dev/null

# A disk of its own for plain files, which has room for three of them.
truncate -s 64M "$SCRATCH/plain.img"
mkfs.ext4 -q -F -m 0 -O ^has_journal "$SCRATCH/plain.img"
mkdir "$SCRATCH/plain"
mount -o loop "$SCRATCH/plain.img" "$SCRATCH/plain"
mount_shared writer
mount_shared reader --log "$SCRATCH/reader.log" -o "passthrough_dir=$SCRATCH/plain,passthrough_size=14M"
W=$SCRATCH/writer R=$SCRATCH/reader
through() { "$FOREBAY" status "$R" --json | python3 -c "import json, sys; s = json.load(sys.stdin); s = s[0] if isinstance(s, list) else s; p = s['passthrough']; print($1)"; }
[ "$(through 'p["on"]')" = True ] || fail "there is no passthrough: $(through 'p.get("why_not")')"

mkdir "$W/final" "$W/plain"
setfattr -n user.forebay.coherence -v immutable "$W/final"
fill() { python3 -c 'import random, sys; sys.stdout.buffer.write(random.Random(sys.argv[1]).randbytes(int(sys.argv[2])))' "$2" "${3:-4000000}" >"$1"; }
is_sealed() { [ "$(getfattr --only-values -n user.forebay.coherence "$1" 2>/dev/null)" = sealed ]; }
for number in 1 2 3 4 5 6; do fill "$W/final/$number" "f$number"; done
fill "$W/final/small" small 1000
fill "$W/plain/1" p1
(cd "$W" && sha256sum -- final/* plain/*) >"$SCRATCH/sums"
for number in 1 2 3 4 5 6; do wait_for 60 "file $number to be sealed" is_sealed "$W/final/$number"; done
right() { (cd "$R" && grep -E " ${1:-.*}\$" "$SCRATCH/sums" | sha256sum --quiet -c -) || fail "${1:-something} is read wrong"; }
# handed FILE: it is opened until the kernel has it.
was_handed() { local before; before=$(through 'p["opens"]'); right "$1"; [ "$(through 'p["opens"]')" -gt "$before" ]; }
handed() { wait_for 60 "$1 to be handed to the kernel" was_handed "$1"; }
handed final/1
right final/small

# Now nobody is asked for its bytes: the name is what the kernel keeps, for as long as the directories' leases last.
exec {kept}<"$R/final/1"
echo 1 >/proc/sys/vm/drop_caches
kill -STOP "${PROXY_PID[a]}" "${PROXY_PID[b]}" "$STORE_PID" "${META_PID[a]}"
cmp - <(python3 -c 'import random, sys; sys.stdout.buffer.write(random.Random("f1").randbytes(4000000))') <&"$kept" || fail "an open file is read wrong while everybody is stopped"
kill -CONT "${PROXY_PID[a]}" "${PROXY_PID[b]}" "$STORE_PID" "${META_PID[a]}"
exec {kept}<&-

# What others may change is not, however often it is opened, and what they write is seen at once.
before=$(through 'p["opens"]')
for _ in 1 2 3 4 5 6; do right plain/1; done
[ "$(through 'p["opens"]')" = "$before" ] || fail "a file that others may change was handed to the kernel"
printf changed | dd of="$W/plain/1" conv=notrunc status=none
[ "$(head -c 7 "$R/plain/1")" = changed ] || fail "a change of another machine is not seen"

# A file that somebody is reading by requests, and a mapping that outlives its open; and nobody writes to what is final.
python3 - "$R/final" <<'PYTHON'
import errno, mmap, os, random, sys

def refused(what):
    try:
        what()
    except OSError as error:
        assert error.errno == errno.EPERM, error
        return
    raise AssertionError("it was not refused")

one, two = (os.path.join(sys.argv[1], name) for name in "12")
want = {name: random.Random("f" + name[-1]).randbytes(4_000_000) for name in (one, two)}
for name in (one, two):
    refused(lambda: os.open(name, os.O_RDWR))
    refused(lambda: os.truncate(name, 5))
held = os.open(two, os.O_RDONLY)
for _ in range(20):
    file = os.open(two, os.O_RDONLY)
    assert os.pread(file, 5000, 3_000_000) == want[two][3_000_000:3_005_000]
    os.close(file)
file = os.open(one, os.O_RDONLY)
kept = mmap.mmap(file, 0, prot=mmap.PROT_READ)
private = mmap.mmap(file, 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE)
os.close(file)
private[:4] = b"mine"
assert kept[:] == want[one] and private[4:] == want[one][4:]
assert os.pread(held, 4_000_000, 0) == want[two]
PYTHON
handed final/2

# More than have room, all at once and again: what is handed over changes, the bytes do not, and the disk has no more than was allowed.
for _ in 1 2 3 4; do
  READING=()
  for number in 1 2 3 4 5 6; do right "final/$number" & READING+=($!); done
  for reading in "${READING[@]}"; do wait "$reading" || fail "a file is read wrong while others are read"; done
done
for number in 1 2 3 4 5 6; do right "final/$number"; done
[ "$(through 'p["assembled"]["used_bytes"]')" -le 14680064 ] || fail "plain files take $(through 'p["assembled"]["used_bytes"]') bytes"

# Removed while it is read, here and on another machine; the number is never another file's.
exec {kept}<"$R/final/1"
rm "$W/final/1" "$R/final/2"
cmp - <(python3 -c 'import random, sys; sys.stdout.buffer.write(random.Random("f1").randbytes(4000000))') <&"$kept" || fail "a file that was removed while it was open is read wrong"
exec {kept}<&-
gone() { ! [ -e "$R/final/1" ]; }
gone || fail "a removed file is there"
fill "$W/final/1" again
sed -i "s|.* final/1\$|$(sha256sum "$W/final/1" | cut -d' ' -f1)  final/1|; / final\/2\$/d" "$SCRATCH/sums"
wait_for 60 "the new one to be sealed" is_sealed "$W/final/1"
for _ in 1 2 3 4; do right final/1; done

# No room on the disk: what is not there is read by requests.
head -c 60000000 /dev/zero >"$SCRATCH/plain/filled" 2>/dev/null || true
fill "$W/final/7" f7
(cd "$W" && sha256sum final/7) >>"$SCRATCH/sums"
wait_for 60 "file 7 to be sealed" is_sealed "$W/final/7"
for _ in 1 2 3 4; do right final/7; sleep 0.3; done
rm "$SCRATCH/plain/filled"

# The proxy of the machine is killed, and comes back.
kill_proxy a
for _ in 1 2; do for number in 1 3 4 5 6 7; do right "final/$number"; done; done
start_proxy a
wait_for 60 "it joins again" has_members 2
for number in 1 3 4 5 6 7; do right "final/$number"; done

# The daemon is killed with files open; what it had on the disk went with it.
exec {kept}<"$R/final/3"
kill -KILL "$(daemon_of "$R")"
! head -c 1 "$R/final/4" >/dev/null 2>&1 || fail "a dead mount opens files"
exec {kept}<&-
umount -l "$R"
empty() { [ "$(df --output=used -B1 "$SCRATCH/plain" | tail -n 1)" -lt 1000000 ]; }
wait_for 30 "its plain files to be gone" empty
mount_shared reader --log "$SCRATCH/reader.log" -o "passthrough_dir=$SCRATCH/plain,passthrough_size=14M"
handed final/4
umount_volume "$R"
mount_shared reader -o "passthrough_dir=$SCRATCH/plain,passthrough_size=0"
for _ in 1 2 3; do right final/4; done
[ "$(through 'p["on"]')" = False ] || fail "it is on although 0 was asked for"
umount_volume "$R"
umount_volume "$W"
umount "$SCRATCH/plain"
for name in a b; do end_proxy "$name"; done
end_cluster
kill "$STORE_PID"
