#!/usr/bin/env bash
# A shared volume at its limit: the write is told so, on each mount what was taken in is stored whatever the other one writes, and what is removed or a higher limit makes room
# without a new mount.
. "$TESTS/prelude.sh"
. "$TESTS/cluster/cluster.bash"

# limit SIZE: gives the volume a limit.
limit() { "$FOREBAY" volume set "$VOLUME_NAME" --limit "$1" --meta "$(addresses)" >/dev/null; }

start_cluster
mount_shared one
mount_shared two
one=$SCRATCH/one two=$SCRATCH/two
# fill FILE: writes 1 MiB after the other up to the first that is refused, says how many were taken, and syncs.
fill() {
  python3 - "$1" <<'PYTHON'
import errno, os, sys
file = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
for count in range(200):
    try:
        if os.write(file, b"%07d." % count * 131072) != 1 << 20:
            break
    except OSError as error:
        assert error.errno == errno.ENOSPC, error
        break
os.fsync(file)
assert os.fstat(file).st_size >= count << 20
print(count)
PYTHON
}
# holds FILE COUNT: has so many MiB, and those that were written.
holds() {
  python3 - "$1" "$2" <<'PYTHON'
import sys
with open(sys.argv[1], "rb") as file:
    for number in range(int(sys.argv[2])):
        assert file.read(1 << 20) == b"%07d." % number * 131072, number
PYTHON
}

echo before >"$one/before"
# That there is a limit is told to each mount. Who was not yet told takes in more than that, and is told at the sync.
limit 1MiB
knows_limit() {
  python3 - "$1/probe" <<'PYTHON'
import errno, os, sys
file = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
try:
    taken = os.write(file, bytes(2 << 20))
except OSError as error:
    assert error.errno == errno.ENOSPC, error
    taken = 0
os.unlink(sys.argv[1])
sys.exit(taken == 2 << 20)
PYTHON
}
for name in one two; do wait_for 60 "$name to know that there is a limit" knows_limit "$SCRATCH/$name"; done
limit 64MiB
wait_for 30 "the limit" sh -c "df --output=size -B1M '$one' | grep -qx ' *64'"
# Both write without a sync in between, so that most of it is kept back on both for a while.
fill "$one/of-one" >"$SCRATCH/ones" &
fill "$two/of-two" >"$SCRATCH/twos" || fail "the second mount was told at its sync and not by write"
wait $! || fail "the first mount was told at its sync and not by write"
ones=$(cat "$SCRATCH/ones") twos=$(cat "$SCRATCH/twos")
echo "taken: $ones and $twos MiB of 64"
[ $((ones + twos)) -le 64 ] || fail "$ones and $twos MiB were taken in 64"
[ $((ones + twos)) -ge 48 ] || fail "only $ones and $twos MiB were taken in 64"
# Each is read on the other mount.
holds "$two/of-one" "$ones"
holds "$one/of-two" "$twos"

# Small files have room yet, removing works, and makes room.
echo small >"$two/small"
rm "$one/of-one"
writes() { dd if=/dev/zero of="$two/more" bs=1M count="$1" conv=fsync status=none 2>/dev/null; }
[ "$ones" -lt 3 ] || wait_for 60 "room for others" writes $((ones - 2))
rm -f "$two/more"
limit 200MiB
wait_for 60 "a higher limit" writes 100
limit none
wait_for 60 "no limit" writes 180
[ "$(cat "$two/before" "$one/small")" = "before
small" ]
