#!/usr/bin/env bash
# An archive of small files is unpacked by one program through a network, near and far away, with and without working ahead of the server: a mount elsewhere sees
# the same, and so does a new one. Says how long it took; nothing depends on that.
# FILES=15000 RUNS=3 is what docs/benchmarks.md tells of; FILES_WAITING: how many are unpacked where each change waits.
. "$TESTS/prelude.sh"
. "$TESTS/cluster/cluster.bash"
FILES=${FILES:-1500} RUNS=${RUNS:-1} FILES_WAITING=${FILES_WAITING:-300}
find_far_link

# write_files DIR COUNT: 50 in a directory, 200 bytes to 8 KiB each.
write_files() {
  python3 - "$1" "$2" <<'PYTHON'
import os, random, sys
root, count = sys.argv[1], int(sys.argv[2])
source = random.Random(11)
for number in range(count):
    directory = os.path.join(root, f"part-{number // 1000}", f"dir-{number // 50}")
    if number % 50 == 0:
        os.makedirs(directory, exist_ok=True)
    with open(os.path.join(directory, f"file-{number}"), "wb") as file:
        file.write(source.randbytes(source.randrange(200, 8192)))
PYTHON
}

# archive NAME COUNT: a tree and its archive.
archive() {
  write_files "$SCRATCH/$1" "$2"
  tar --format=posix -cf "$SCRATCH/$1.tar" -C "$SCRATCH/$1" .
}

now() { date +%s.%N; }

# processor PID: seconds of processor time that it has used.
processor() { awk -v hertz="$(getconf CLK_TCK)" '{ print ($14 + $15) / hertz }' "/proc/$1/stat"; }

# unpack TREE COUNT WHAT: into the mount at $SCRATCH/far, which is unmounted then: so all is stored and told.
unpack() {
  local into=$SCRATCH/far/run-$((UNPACKED += 1)) pid begun used unpacked
  mkdir "$into"
  pid=$(daemon_of "$SCRATCH/far")
  used=$(processor "$pid") begun=$(now)
  tar -xf "$SCRATCH/$1.tar" -C "$into"
  unpacked=$(now)
  used=$(awk -v a="$used" -v b="$(processor "$pid")" 'BEGIN { print b - a }')
  same_tree "$SCRATCH/$1" "$SCRATCH/near/run-$UNPACKED"
  umount_volume "$SCRATCH/far"
  awk -v what="$3" -v files="$2" -v t0="$begun" -v t1="$unpacked" -v used="$used" 'BEGIN {
    printf "%s: %d files, %.2f s, %.0f us of processor time a file meanwhile\n", what, files, t1 - t0, used * 1e6 / files }'
}
UNPACKED=0

# through MILLISECONDS [OPTION...]: mounts at $SCRATCH/far by a way that takes so long in each direction.
through() {
  echo "delay $1" >&"${RELAY[1]}"
  read -r _ <&"${RELAY[0]}"
  shift
  mkdir -p "$SCRATCH/far"
  "$FOREBAY" mount "forebay://$RELAYED/$VOLUME_NAME" "$SCRATCH/far" --insecure -o allow_other "$@" </dev/null >"$SCRATCH/mount.log" 2>&1 ||
    { cat "$SCRATCH/mount.log" >&2; fail "mount $SCRATCH/far"; }
}

start_cluster
mount_shared near
coproc RELAY { exec "$FAR_LINK" 127.0.0.1:0 "$(addresses)" 0; }
read -r RELAYED <&"${RELAY[0]}"
archive many "$FILES"
archive few "$FILES_WAITING"
for ((run = 1; run <= RUNS; run++)); do
  for delay in 0 0.5; do
    through "$delay"
    unpack many "$FILES" "ahead, $delay ms each way"
    through "$delay" -o noahead
    unpack few "$FILES_WAITING" "waiting, $delay ms each way"
  done
done
umount_volume "$SCRATCH/near"
mount_shared near
for ((run = 1; run <= UNPACKED; run++)); do
  tree=many
  [ $((run % 2)) -eq 1 ] || tree=few
  same_tree "$SCRATCH/$tree" "$SCRATCH/near/run-$run"
done
end_cluster near
eval "exec ${RELAY[1]}>&-"
