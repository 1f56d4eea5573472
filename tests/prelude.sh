# What every case starts with: `. "$TESTS/prelude.sh"`. Not a case itself.
#
# Set by tools/test: TESTS (this directory), FOREBAY and CONFORMANCE (the binaries), SCRATCH (an empty directory on ext4,
# this case's own), and for cases that only need a directory DIR (an empty one on what is tested, this case's own).
# A case exits 0 when it passed. A last line `N passed, N failed` counts as that many.
set -euo pipefail
export LC_ALL=C GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null

fail() { echo "FAILED: $*" >&2; exit 1; }

# wait_for SECONDS WHAT COMMAND...: until the command succeeds; the deadline is only for what would never come.
wait_for() {
  local deadline=$((SECONDS + $1)) what=$2
  shift 2
  until "$@" >/dev/null 2>&1; do
    [ "$SECONDS" -lt "$deadline" ] || fail "waited in vain for $what"
    sleep 0.1
  done
}

# manifest DIR: names, attributes, contents and modification times, in lines.
manifest() { "$CONFORMANCE" manifest "$1" --without-ctime; }

# same_tree A B: both hold the same.
same_tree() {
  manifest "$1" >"$SCRATCH/manifest-a"
  manifest "$2" >"$SCRATCH/manifest-b"
  diff "$SCRATCH/manifest-a" "$SCRATCH/manifest-b" | head -n 40 >"$SCRATCH/manifest-diff" || true
  [ -s "$SCRATCH/manifest-a" ] || fail "$1 is empty"
  [ ! -s "$SCRATCH/manifest-diff" ] || { cat "$SCRATCH/manifest-diff" >&2; fail "$1 and $2 differ"; }
}

# crate_sources NAME: where cargo keeps a dependency's sources; real trees to work on.
crate_sources() {
  local found
  found=$(ls -d "${CARGO_HOME:-$HOME/.cargo}"/registry/src/*/"$1"-[0-9]* 2>/dev/null | sort -V | tail -n 1)
  [ -n "$found" ] || fail "the sources of crate $1 are not in cargo's registry folder: cargo fetch --locked"
  echo "$found"
}

# ---- volumes: for cases that mount one themselves -----------------------------------------------------------------

# create_volume VOLUME [OPTION...] and mount_volume VOLUME MOUNTPOINT [OPTION...]
create_volume() { "$FOREBAY" create "$@" >"$SCRATCH/create.log" 2>&1 || { cat "$SCRATCH/create.log" >&2; fail "create $*"; }; }

mount_volume() {
  local volume=$1 point=$2
  shift 2
  mkdir -p "$point"
  "$FOREBAY" mount "$volume" "$point" -o "${FOREBAY_TEST_OPTIONS:-allow_other}" "$@" \
    </dev/null >"$SCRATCH/mount.log" 2>&1 || { cat "$SCRATCH/mount.log" >&2; fail "mount $volume $point $*"; }
  mountpoint -q "$point" || fail "mount returned, but $point is not mounted"
}

umount_volume() {
  timeout 180 "$FOREBAY" umount "$1" </dev/null >"$SCRATCH/umount.log" 2>&1 || { cat "$SCRATCH/umount.log" >&2; fail "umount $1"; }
  ! mountpoint -q "$1" || fail "umount returned, but $1 is still mounted"
}

# clean_fsck VOLUME: fsck finds nothing.
clean_fsck() {
  timeout 180 "$FOREBAY" fsck "$1" </dev/null >"$SCRATCH/fsck.log" 2>&1 || { cat "$SCRATCH/fsck.log" >&2; fail "fsck $1 found something"; }
}

# daemon_of MOUNTPOINT: the process id that serves it.
daemon_of() {
  "$FOREBAY" status "$1" --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["pid"])'
}

# status_of MOUNTPOINT KEY: one number or string out of `status --json`.
status_of() {
  "$FOREBAY" status "$1" --json | python3 -c 'import json, sys; print(json.load(sys.stdin)[sys.argv[1]])' "$2"
}

# refused CHANGES-NOTHING-IN COMMAND...: the command fails with one line on stderr and leaves the directory as it was.
# The line is kept in $SCRATCH/refusal for the case to look at.
refused() {
  local watched=$1 status=0
  shift
  [ -z "$watched" ] || state_of "$watched" >"$SCRATCH/state-before"
  timeout 120 "$@" </dev/null >"$SCRATCH/refused-stdout" 2>"$SCRATCH/refusal" || status=$?
  [ "$status" -ne 0 ] || fail "this succeeded, and should not have: $*"
  [ "$status" -lt 124 ] || { cat "$SCRATCH/refusal" >&2; fail "this did not end by itself (status $status): $*"; }
  [ "$(grep -c . "$SCRATCH/refusal")" -eq 1 ] || { cat "$SCRATCH/refusal" >&2; fail "not one line on stderr: $*"; }
  ! grep -qiE 'panicked|backtrace|Os \{|Some\(|Error \{' "$SCRATCH/refusal" || { cat "$SCRATCH/refusal" >&2; fail "not a message to a person: $*"; }
  [ -z "$watched" ] || { state_of "$watched" >"$SCRATCH/state-after"; diff "$SCRATCH/state-before" "$SCRATCH/state-after" >&2 || fail "$watched was changed by: $*"; }
}

state_of() { if [ -d "$1" ]; then manifest "$1"; elif [ -e "$1" ]; then sha256sum "$1"; else echo absent; fi; }

# says PATTERN...: the refusal names each of these.
says() {
  local pattern
  for pattern in "$@"; do
    grep -qiE -- "$pattern" "$SCRATCH/refusal" || { cat "$SCRATCH/refusal" >&2; fail "the message does not say: $pattern"; }
  done
}

# find_far_link: the delaying relay of the test kit (crates/testkit/src/far.rs), beside the binary that is tested or in the build folder; sets FAR_LINK unless it is set.
find_far_link() {
  FAR_LINK=${FAR_LINK:-$(dirname "$FOREBAY")/far-link}
  [ -x "$FAR_LINK" ] || FAR_LINK=$TESTS/../target/debug/far-link
  [ -x "$FAR_LINK" ] || fail "no far-link beside $FOREBAY: cargo build -p forebay-testkit --bins, or say FAR_LINK=FILE"
}

# start_s3 DIR [PORT]: an S3 server; sets the AWS_* variables and S3_SERVER_PID. make_bucket DIR NAME.
start_s3() { eval "$("$TESTS/../tools/s3-server" start "$@")"; }
stop_s3() { "$TESTS/../tools/s3-server" stop "$S3_SERVER_PID"; }
make_bucket() { mkdir -p "$1/buckets/$2"; }

# write_tree DIR [COUNT]: a small tree with contents of many sizes, always the same.
write_tree() {
  python3 - "$1" "${2:-60}" <<'PYTHON'
import os, random, sys
root, count = sys.argv[1], int(sys.argv[2])
source = random.Random(7)
for number in range(count):
    directory = os.path.join(root, f"dir-{number % 7}", f"sub-{number % 3}")
    os.makedirs(directory, exist_ok=True)
    size = source.choice([0, 1, 100, 1000, 4096, 5000, 70_000, 300_000, 1_500_000])
    with open(os.path.join(directory, f"file-{number}"), "wb") as file:
        file.write(source.randbytes(size))
os.symlink("dir-0", os.path.join(root, "link"))
PYTHON
}
