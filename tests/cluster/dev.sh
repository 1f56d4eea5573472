#!/usr/bin/env bash
# `forebay dev cluster`: what it says can be tried is tried, each line of it; Ctrl-C ends all of it, and leaves nothing, or what it was told to keep.
. "$TESTS/prelude.sh"
unset http_proxy https_proxy all_proxy HTTP_PROXY HTTPS_PROXY ALL_PROXY
export TMPDIR=$SCRATCH/tmp
mkdir "$TMPDIR"

# play [OPTION...], and stop: the whole in the background, and its end by Ctrl-C. A background job of a script has SIGINT ignored unless it is asked for.
play() {
  # What the last one said is not taken for what this one says.
  : >"$SCRATCH/out"
  python3 -c 'import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); os.execv(sys.argv[1], sys.argv[1:])' \
    "$FOREBAY" dev cluster "$@" </dev/null >"$SCRATCH/out" 2>"$SCRATCH/err" &
  PLAYS=$!
  wait_for 120 "what is to be tried" says_ctrl_c
}
says_ctrl_c() { grep -q 'Ctrl-C ends it' "$SCRATCH/out" || ! kill -0 "$PLAYS"; }
stop() {
  kill -0 "$PLAYS" || { cat "$SCRATCH/err" >&2; fail "it has ended by itself"; }
  kill -INT "$PLAYS"
  wait "$PLAYS" || { cat "$SCRATCH/err" >&2; fail "it did not end in order"; }
}
line() { grep -E "^  $1" "$SCRATCH/out" | sed 's/#.*//; s/^ *//'; }

play
for pattern in 'echo hello' 'forebay meta status' 'kill -9'; do
  line "$pattern" >"$SCRATCH/line"
  [ -s "$SCRATCH/line" ] || { cat "$SCRATCH/out" "$SCRATCH/err" >&2; fail "it does not say: $pattern"; }
  PATH=$(dirname "$FOREBAY"):$PATH timeout 60 bash -e "$SCRATCH/line" >"$SCRATCH/said" || fail "this does not work: $(cat "$SCRATCH/line")"
  case $pattern in
    echo*) [ "$(cat "$SCRATCH/said")" = hello ] || fail "the other mount has something else" ;;
    forebay*) grep -q play "$SCRATCH/said" || fail "the status does not have the volume" ;;
  esac
done
# The next server goes on where that one was.
POINT=$(find "$TMPDIR" -maxdepth 2 -name mount-2)
timeout 60 sh -c "echo again >'$POINT/after' && sync '$POINT/after'" || fail "no server goes on"
[ "$(cat "${POINT%2}1/after")" = again ]
stop
[ -z "$(ls "$TMPDIR")" ] || { ls -R "$TMPDIR" >&2; fail "something is left"; }

play "$SCRATCH/kept" --mounts 3 --servers 1 --proxies 3
echo kept >"$SCRATCH/kept/mount-3/file"
[ "$(cat "$SCRATCH/kept/mount-1/file")" = kept ]
line 'forebay group show' >"$SCRATCH/line"
PATH=$(dirname "$FOREBAY"):$PATH timeout 60 bash -e "$SCRATCH/line" >"$SCRATCH/said" || fail "the group is not shown"
stop
play "$SCRATCH/kept" --mounts 1
[ "$(cat "$SCRATCH/kept/mount-1/file")" = kept ] || fail "what was to be kept is not there"
stop
