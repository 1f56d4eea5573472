#!/usr/bin/env bash
# A client that works ahead of a server far away is killed in the middle: of what it did in several directories a prefix is there, with all that was synced.
# One of the directories is looked at from another mount all the while, so that some changes wait for the server and others do not.
. "$TESTS/prelude.sh"
. "$TESTS/cluster/cluster.bash"
ROUNDS=${ROUNDS:-4}
find_far_link

# work DIR LOG: makes, moves and removes names in two directories until the mount is gone. LOG gets each change before it is made, and "synced" after an fsync.
work() {
  python3 - "$1" "$2" <<'PYTHON'
import os, random, sys
top, log = sys.argv[1], open(sys.argv[2], "w", buffering=1)
source = random.Random(log.name)
own, common = "own", "common"
# The server is far away for what is not done ahead.
places = [own] * 9 + [common]
there = []
def note(*words):
    print(*words, file=log)
try:
    for number in range(1_000_000):
        what = source.randrange(10)
        if what < 6 or len(there) < 5:
            name = f"{source.choice(places)}/f{number}"
            note("make", name)
            os.close(os.open(f"{top}/{name}", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
            there.append(name)
        elif what < 8:
            old = there.pop(source.randrange(len(there)))
            new = f"{source.choice(places)}/m{number}"
            note("move", old, new)
            os.rename(f"{top}/{old}", f"{top}/{new}")
            there.append(new)
        elif what < 9:
            old = there.pop(source.randrange(len(there)))
            note("remove", old)
            os.unlink(f"{top}/{old}")
        elif number % 7 == 0:
            name = source.choice((own, common))
            directory = os.open(f"{top}/{name}", os.O_RDONLY | os.O_DIRECTORY)
            note("syncing", name)
            os.fsync(directory)
            note("synced")
            os.close(directory)
except OSError as error:
    note("ended", error.errno)
PYTHON
}

# is_prefix DIR LOG: what is there is what some first ones of the changes have made, with all before the last fsync that returned.
is_prefix() {
  python3 - "$1" "$2" <<'PYTHON'
import os, sys
top, lines = sys.argv[1], [line.split() for line in open(sys.argv[2])]
found = {f"{name}/{entry}" for name in ("own", "common") for entry in os.listdir(f"{top}/{name}")}
changes, synced, state = [], 0, set()
for words in lines:
    if words[0] == "synced":
        synced = max(synced, begun)
    elif words[0] == "syncing":
        # What came after the last change of this directory is not asked for.
        concern = (at for at in range(len(changes), 0, -1) if any(name.startswith(words[1]) for name in changes[at - 1][1:]))
        begun = next(concern, 0)
    elif words[0] != "ended":
        changes.append(words)
fits = []
for done, words in enumerate(changes):
    if state == found and done >= synced:
        fits.append(done)
    if words[0] == "make":
        state.add(words[1])
    elif words[0] == "move":
        state.remove(words[1])
        state.add(words[2])
    else:
        state.remove(words[1])
if state == found:
    fits.append(len(changes))
assert fits, f"no prefix of {len(changes)} changes, {synced} of them synced: too much {sorted(found - state)[:9]}, missing {sorted(state - found)[:9]}"
print(f"{fits[-1]} of {len(changes)} changes, {synced} synced")
PYTHON
}

start_cluster
mount_shared two
coproc RELAY { exec "$FAR_LINK" 127.0.0.1:0 "$(addresses)" 0; }
read -r RELAYED <&"${RELAY[0]}"
echo "delay 5" >&"${RELAY[1]}"
read -r _ <&"${RELAY[0]}"
for ((round = 1; round <= ROUNDS; round++)); do
  mkdir -p "$SCRATCH/one"
  "$FOREBAY" mount "forebay://$RELAYED/$VOLUME_NAME" "$SCRATCH/one" --insecure -o allow_other </dev/null >"$SCRATCH/mount.log" 2>&1 ||
    { cat "$SCRATCH/mount.log" >&2; fail "mount $SCRATCH/one"; }
  mkdir -p "$SCRATCH/one/round-$round/own" "$SCRATCH/one/round-$round/common"
  work "$SCRATCH/one/round-$round" "$SCRATCH/work-$round" &
  worker=$!
  (while [ ! -e "$SCRATCH/over-$round" ]; do
    ls "$SCRATCH/two/round-$round/common" >/dev/null
    sleep "0.0$((RANDOM % 9))"
  done) &
  looker=$!
  enough() { [ "$(wc -l <"$SCRATCH/work-$round")" -ge $((300 * round)) ]; }
  wait_for 120 "enough changes" enough
  kill -KILL "$(daemon_of "$SCRATCH/one")"
  wait "$worker"
  umount -l "$SCRATCH/one"
  is_prefix "$SCRATCH/two/round-$round" "$SCRATCH/work-$round"
  touch "$SCRATCH/over-$round"
  wait "$looker"
done
end_cluster two
eval "exec ${RELAY[1]}>&-"
echo "$ROUNDS passed, 0 failed"
