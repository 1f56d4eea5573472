#!/usr/bin/env bash
# Two mounts of one volume agree about names, attributes, contents, locks and mappings at every moment; after a remount all is as it was.
. "$TESTS/prelude.sh"
. "$TESTS/cluster/cluster.bash"
start_cluster
mount_shared one
mount_shared two
python3 "$TESTS/cluster/agree.py" "$SCRATCH/one" "$SCRATCH/two" 1 250 >"$SCRATCH/agree.log" 2>&1 || { cat "$SCRATCH/agree.log" >&2; exit 1; }
for through in 'one two' 'two one' 'one one'; do
  read -r listed changed <<<"$through"
  python3 "$TESTS/conformance/listed.py" "$SCRATCH/$listed" "$SCRATCH/$changed" >"$SCRATCH/listed.log" 2>&1 && ! grep -q FAILED "$SCRATCH/listed.log" ||
    { cat "$SCRATCH/listed.log" >&2; exit 1; }
  rm -r "$SCRATCH/one/listed"
done
same_tree "$SCRATCH/one" "$SCRATCH/two"
manifest "$SCRATCH/one" >"$SCRATCH/before"
umount_volume "$SCRATCH/one"
mount_shared one
manifest "$SCRATCH/one" | diff - "$SCRATCH/before" >&2
# What is told without waiting, and what has lost its name a moment ago, is counted a moment later.
is_counted() { [ "$(df --output=iused "$SCRATCH/$1" | tail -n 1)" -eq "$(find "$SCRATCH/$1" -printf '%i\n' | sort -u | wc -l)" ]; }
for name in one two; do
  wait_for 60 "df -i to tell how many inodes there are ($(df --output=iused "$SCRATCH/$name" | tail -n 1) now)" is_counted "$name"
done
end_cluster one two
tail -n 1 "$SCRATCH/agree.log"
