#!/usr/bin/env bash
# kill -9, ten times, in the middle of writing: what was synced is there, no repair is needed, fsck finds nothing.
. "$TESTS/prelude.sh"
create_volume "$SCRATCH/volume"
for round in $(seq 10); do
  mount_volume "$SCRATCH/volume" "$SCRATCH/mount"
  rm -f "$SCRATCH/synced"
  /usr/bin/python3 "$TESTS/robustness/write_and_sync.py" "$SCRATCH/mount" "$SCRATCH/synced" "$round" &
  writer=$!
  enough() { [ "$(wc -l <"$SCRATCH/synced")" -ge 15 ]; }
  wait_for 60 "synced files" enough
  kill -9 "$(daemon_of "$SCRATCH/mount")"
  kill "$writer" 2>/dev/null || true
  wait "$writer" 2>/dev/null || true
  umount -l "$SCRATCH/mount"
  cat "$SCRATCH/synced" >>"$SCRATCH/all-synced"
  clean_fsck "$SCRATCH/volume"
  mount_volume "$SCRATCH/volume" "$SCRATCH/mount"
  (cd "$SCRATCH/mount" && sha256sum --quiet -c "$SCRATCH/all-synced") || fail "round $round: synced files are lost or wrong"
  umount_volume "$SCRATCH/mount"
done
clean_fsck "$SCRATCH/volume"
