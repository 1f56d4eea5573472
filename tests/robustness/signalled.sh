#!/usr/bin/env bash
# Who waits for a lock hears of a signal that came before the daemon took the request, by each transport. Where requests come over rings, the
# kernel does not tell of it.
. "$TESTS/prelude.sh"
create_volume "$SCRATCH/volume"
transports=(dev_fuse)
[ "$(cat /sys/module/fuse/parameters/enable_uring 2>/dev/null)" != Y ] || transports+=(io_uring)
for transport in "${transports[@]}"; do
  # With passthrough, the daemon keeps the locks.
  mount_volume "$SCRATCH/volume" "$SCRATCH/mount" -o "passthrough_size=16MiB,transport=$transport"
  [ "$(status_of "$SCRATCH/mount" transport)" = "${transport/dev_fuse//dev/fuse}" ] || fail "it is no mount by $transport"
  daemon=$(daemon_of "$SCRATCH/mount")
  python3 "$TESTS/robustness/signalled.py" "$daemon" "$SCRATCH/mount/file"
  umount_volume "$SCRATCH/mount"
done
