#!/usr/bin/env bash
# kill -9 in the middle of everything, ten times by each transport: nobody hangs, what was synced is there, no repair is needed, fsck finds nothing.
. "$TESTS/prelude.sh"
create_volume "$SCRATCH/volume"
for round in $(seq 20); do
  # Where root's switch for io_uring is on, auto is that.
  transport=$([ $((round % 2)) -eq 0 ] && echo dev_fuse || echo auto)
  mount_volume "$SCRATCH/volume" "$SCRATCH/mount" -o "transport=$transport"
  rm -rf "$SCRATCH/synced" "$SCRATCH/ready" "$SCRATCH/mount/busy"
  mkdir "$SCRATCH/mount/busy"
  /usr/bin/python3 "$TESTS/robustness/write_and_sync.py" "$SCRATCH/mount" "$SCRATCH/synced" "$round" &
  writer=$!
  /usr/bin/python3 "$TESTS/robustness/busy_until_killed.py" "$SCRATCH/mount/busy" "$SCRATCH/ready" &
  busy=$!
  enough() { [ -e "$SCRATCH/ready" ] && [ "$(wc -l <"$SCRATCH/synced")" -ge 15 ]; }
  wait_for 60 "synced files" enough
  kill -9 "$(daemon_of "$SCRATCH/mount")"
  wait "$busy" || fail "round $round, $transport: not all were told that the mount is gone"
  kill "$writer" 2>/dev/null || true
  wait "$writer" 2>/dev/null || true
  umount -l "$SCRATCH/mount"
  cat "$SCRATCH/synced" >>"$SCRATCH/all-synced"
  [ $((round % 5)) -ne 0 ] || clean_fsck "$SCRATCH/volume"
  mount_volume "$SCRATCH/volume" "$SCRATCH/mount"
  (cd "$SCRATCH/mount" && sha256sum --quiet -c "$SCRATCH/all-synced") || fail "round $round, $transport: synced files are lost or wrong"
  umount_volume "$SCRATCH/mount"
done
clean_fsck "$SCRATCH/volume"
