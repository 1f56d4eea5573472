# Work of several mounts that checks itself, and that goes on while things happen to them (machines.py). After prelude.sh; not a case itself.
#
# Each mount is $SCRATCH/NAME. What is recorded is in STATE, outside of the volume.

readonly STATE=$SCRATCH/state WORK=$TESTS/cluster/machines.py
declare -A WORKER

# set_up_work NAME...: what all of them use, made through the first.
set_up_work() {
  local name
  mkdir "$STATE"
  for name in "$@"; do : >"$STATE/$name.log"; done
  python3 "$WORK" setup "$SCRATCH/$1" "$STATE"
}

start_work() { # NAME...
  local name
  for name in "$@"; do
    setsid python3 "$WORK" work "$SCRATCH/$name" "$STATE" "$name" </dev/null >"$SCRATCH/work-$name.log" 2>&1 &
    WORKER[$name]=$!
  done
}

rounds() { local count; count=$(cat "$STATE/$1.$2.rounds" 2>/dev/null) || true; echo "${count:-0}"; }

# where_is NAME: in which call each of its threads is, and how far it is.
where_is() {
  local said=$SCRATCH/work-$1.log before
  before=$(wc -l <"$said")
  kill -USR1 "${WORKER[$1]}" || true
  wait_for 10 "$1 to say where it is" grep -q 'most recent call first' "$said"
  { tail -n "+$((before + 1))" "$said"; grep . "$STATE"/*.rounds; } >&2
}

# goes_on NAME...: each of its threads ends two more rounds; the first of them may have begun before.
goes_on() {
  local name title before deadline
  declare -A before
  for name in "$@"; do for title in names contents locks; do before[$name.$title]=$(rounds "$name" "$title"); done; done
  deadline=$((SECONDS + 60))
  for name in "$@"; do
    for title in names contents locks; do
      until [ "$(rounds "$name" "$title")" -ge $((before[$name.$title] + 2)) ]; do
        kill -0 "${WORKER[$name]}" 2>/dev/null || fail "$name was told an error, or saw what should not be"
        [ "$SECONDS" -lt "$deadline" ] || { where_is "$name"; fail "$name does not go on ($title)"; }
        sleep 0.1
      done
    done
  done
}

# end_work NAME...: nobody was told an error, and all that was recorded is there, whoever looks.
end_work() {
  local name
  touch "$STATE/stop"
  for name in "$@"; do wait "${WORKER[$name]}" || fail "$name was told an error, or saw what should not be"; done
  for name in "$@"; do timeout 120 python3 "$WORK" verify "$SCRATCH/$name" "$STATE" || fail "$name does not see what was recorded"; done
}

show_work() { tail -n 5 "$SCRATCH"/work-*.log >&2 || true; }
