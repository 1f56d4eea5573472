#!/usr/bin/env bash
# What sharing a volume costs, through the kernel, beside a volume of one machine, by root: TESTS=$PWD/tests FOREBAY=$PWD/target/release/forebay SCRATCH=$(mktemp -d) bash tests/measure/shared.sh [create] [synced] [asking] [list].
# SCRATCH is a directory that all may enter. Cases take turns; nothing is judged here, docs/benchmarks.md says what came of it.
#
#   create  programs that make empty files, each in a directory of its own: one and two on a mount of one machine, one and two on as many mounts of a shared volume
#   synced  the same, each file synced before the next
#   asking  beside that on one machine: files that are made through shared mounts that work ahead in no directory (-o noahead), so that each is committed when it is there, and is not synced
#   list    a directory of COUNTS entries, made through the first mount, listed with attributes through the second: at once and again, and by a mount of one machine
. "$TESTS/prelude.sh"
. "$TESTS/cluster/cluster.bash"

readonly ROUNDS=${ROUNDS:-3} EACH=${EACH:-100000} EACH_SYNCED=${EACH_SYNCED:-4000} COUNTS=${COUNTS:-100000 1000000}
NUMBER=0

work() { python3 "$TESTS/measure/shared.py" "$@"; }

# ticks PID...: processor time of them together, ms.
ticks() { local pid; for pid in "$@"; do cat "/proc/$pid/stat"; done | python3 -c 'import os, sys
print(sum(sum(map(int, line.rsplit(")", 1)[1].split()[11:13])) for line in sys.stdin) * 1000 // os.sysconf("SC_CLK_TCK"))'; }

# rate FILE...: entries a second of all of them together.
rate() { cat "$@" | python3 -c 'import sys
lines = [line.split() for line in sys.stdin]
print(round(sum(int(line[2]) for line in lines) / (max(float(line[1]) for line in lines) - min(float(line[0]) for line in lines))))'; }

# made HOW COUNT WHAT MOUNT...: a program on each mount makes COUNT files, all at once. Says files a second, and the processor time of daemons and server for each, µs.
made() {
  local how=$1 count=$2 what=$3 at before after mount pids=() said=() pid
  shift 3
  NUMBER=$((NUMBER + 1))
  at=$(work now 1)
  before=$(ticks "${DAEMONS[@]}")
  for mount in "$@"; do
    work "$how" "$SCRATCH/$mount/d$NUMBER-${#pids[@]}" "$count" "$at" >"$SCRATCH/said-${#pids[@]}" &
    said+=("$SCRATCH/said-${#pids[@]}") pids+=($!)
  done
  for pid in "${pids[@]}"; do wait "$pid" || fail "$what"; done
  after=$(ticks "${DAEMONS[@]}")
  echo "$how $what: $(rate "${said[@]}")/s, $(((after - before) * 1000 / (count * $#))) us"
}

making() { # HOW COUNT
  local round
  for round in $(seq "$ROUNDS"); do
    made "$1" "$2" "one machine, one program" alone
    made "$1" "$2" "one machine, two programs" alone alone
    made "$1" "$2" "shared, one mount" one
    made "$1" "$2" "shared, two mounts" one two
  done
}

create() { making create "$EACH"; }
synced() { making synced "$EACH_SYNCED"; }

asking() {
  local round name before=("${DAEMONS[@]}")
  for name in asks asks-too; do
    mount_shared "$name" -o noahead
    DAEMONS+=("$(daemon_of "$SCRATCH/$name")")
  done
  for round in $(seq "$ROUNDS"); do
    made synced "$EACH_SYNCED" "one machine, one program" alone
    made synced "$EACH_SYNCED" "one machine, two programs" alone alone
    made create "$EACH_SYNCED" "shared without delegation, one mount" asks
    made create "$EACH_SYNCED" "shared without delegation, two mounts" asks asks-too
  done
  for name in asks asks-too; do umount_volume "$SCRATCH/$name"; done
  DAEMONS=("${before[@]}")
}

# scanned WHAT DIR: one listing of it; how long, and the processor time of daemons and server for each entry.
scanned() {
  local before after
  before=$(ticks "${DAEMONS[@]}")
  work scan "$2" >"$SCRATCH/said"
  after=$(ticks "${DAEMONS[@]}")
  python3 - "$1" $((after - before)) "$(cat "$SCRATCH/said")" <<'PYTHON'
import sys
began, ended, count = sys.argv[3].split()
print(f"list {sys.argv[1]}: {count} in {float(ended) - float(began):.2f} s, {int(sys.argv[2]) * 1000 / int(count):.1f} us each")
PYTHON
}

list() {
  local count name
  for count in $COUNTS; do
    for name in alone one; do
      work create "$SCRATCH/$name/list-$count" "$count" 0 >"$SCRATCH/said"
      echo "made $count on $name: $(rate "$SCRATCH/said")/s"
    done
    scanned "$count, shared, made a moment ago on the other mount" "$SCRATCH/two/list-$count"
    scanned "$count, shared, again" "$SCRATCH/two/list-$count"
    scanned "$count, shared, on the mount that made them" "$SCRATCH/one/list-$count"
    remount
    scanned "$count, shared, by a new mount" "$SCRATCH/two/list-$count"
    scanned "$count, one machine, by a new mount" "$SCRATCH/alone/list-$count"
    scanned "$count, one machine, again" "$SCRATCH/alone/list-$count"
  done
}

mount_all() {
  mount_shared one
  mount_shared two
  mount_volume "$SCRATCH/volume" "$SCRATCH/alone"
  DAEMONS=("$(daemon_of "$SCRATCH/one")" "$(daemon_of "$SCRATCH/two")" "$(daemon_of "$SCRATCH/alone")" "${META_PID[a]}")
}

remount() {
  local name
  for name in one two alone; do umount_volume "$SCRATCH/$name"; done
  sync
  mount_all
}

start_cluster
create_volume "$SCRATCH/volume"
mount_all
for part in "${@:-create synced list}"; do
  # shellcheck disable=SC2086
  for what in $part; do "$what"; done
done
umount_volume "$SCRATCH/alone"
end_cluster one two
