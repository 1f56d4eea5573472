#!/usr/bin/env bash
# A shared mount, alone, behaves as a file system does: pjdfstest, and our comparison with ext4, call by call. Access times are the one difference (docs/semantics.md).
. "$TESTS/prelude.sh"
. "$TESTS/cluster/cluster.bash"
passed=0
# counts LOG: its last line says how many passed; none failed.
counts() {
  local line
  line=$(tail -n 1 "$1")
  [[ $line =~ ^([0-9]+)\ passed,\ 0\ failed$ ]] || { tail -n 60 "$1" >&2; fail "$line"; }
  passed=$((passed + BASH_REMATCH[1]))
}
start_cluster
mount_shared one
for place in pjdfstest calls; do install -d -m 755 "$SCRATCH/one/$place"; done
DIR=$SCRATCH/one/pjdfstest bash "$TESTS/conformance/pjdfstest" >"$SCRATCH/pjdfstest.out" 2>&1 || true
counts "$SCRATCH/pjdfstest.out"
cases=()
while read -r name; do [ "$name" = relatime ] || cases+=(--case "$name"); done < <("$CONFORMANCE" list)
install -d -m 755 "$SCRATCH/reference"
"$CONFORMANCE" run "$SCRATCH/one/calls" "$SCRATCH/reference" "${cases[@]}" --seeds "${FOREBAY_SEEDS:-4}" --first-seed "${FOREBAY_FIRST_SEED:-1}" >"$SCRATCH/calls.out" 2>&1 || true
counts "$SCRATCH/calls.out"
end_cluster one
echo "$passed passed, 0 failed"
