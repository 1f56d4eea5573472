#!/usr/bin/env bash
# The disk of a member fails under it: from one moment on ext4 takes nothing and gives nothing but errors. One line of the member's log says what to do; writers and readers are
# told nothing; the group counts the member out; and once its disk is seen to it joins again, with what it had.
. "$TESTS/prelude.sh"
. "$TESTS/cluster/cluster.bash"
. "$TESTS/cluster/proxies.bash"

mount_disk() { mount -o loop "$SCRATCH/disk-b.img" "$SCRATCH/disk-b"; }
# As after an error of the device, which cannot be asked for: the ioctl that tests of file systems have.
shut_down() {
  python3 - "$1" <<'PYTHON'
import fcntl, os, struct, sys
EXT4_IOC_SHUTDOWN, WITHOUT_A_FLUSH = 0x8004587D, 2
fcntl.ioctl(os.open(sys.argv[1], os.O_RDONLY), EXT4_IOC_SHUTDOWN, struct.pack("I", WITHOUT_A_FLUSH))
PYTHON
}

# Half of it may be what the store does not have: more than is written while that is away.
PROXY_CACHE=1GiB
truncate -s 4G "$SCRATCH/disk-b.img"
mkfs.ext4 -q -F -m 0 "$SCRATCH/disk-b.img"
mkdir "$SCRATCH/disk-b"
mount_disk
PROXY_DIR[b]=$SCRATCH/disk-b/proxy
replica_group 20
for name in writer reader; do
  mount_shared "$name"
  wait_for 60 "$name to know the group" knows_group "$name"
done

work() { python3 "$TESTS/cluster/writeback.py" "$@"; }
synced() { wc -l <"$SCRATCH/load"; }
has_synced_since() { [ "$(synced)" -gt "$1" ]; }
load_goes_on() { local now; now=$(synced); wait_for 60 "the writer to go on" has_synced_since $((now + 5)); }

# The store is away from before the first write on: what is synced is nowhere but with the members.
kill -STOP "$STORE_PID"
work write "$SCRATCH/writer" "$SCRATCH/load" >"$SCRATCH/load.said" 2>&1 &
load=$!
wait_for 60 "the writer to begin" test -s "$SCRATCH/load"
load_goes_on
shut_down "$SCRATCH/disk-b"
head -n "$(synced)" "$SCRATCH/load" >"$SCRATCH/before"
load_goes_on
wait_for 60 "the member to say what to do" grep -q 'the log takes nothing more because it failed to .*see to the disk, and start the proxy again' "$SCRATCH/proxy-b.log"
work check "$SCRATCH/reader" "$SCRATCH/before" >/dev/null || fail "with one disk bad, what was synced is not read"
wait_for 60 "it is counted out" has_members 2
load_goes_on
kill -0 "${PROXY_PID[b]}" || fail "the proxy has ended: it serves what it has in memory"
[ "$(grep -c 'log::writer: the log takes nothing more' "$SCRATCH/proxy-b.log")" = 1 ] || fail "it is said more than once"
! grep -q 'a copy stays as it is' "$SCRATCH/proxy-b.log" || fail "it is said of each copy, too"

# The disk is seen to.
kill_proxy b
umount "$SCRATCH/disk-b"
mount_disk
start_proxy b
wait_for 60 "it joins again" has_members 3
kill -CONT "$STORE_PID"
load_goes_on
touch "$SCRATCH/load.stop"
wait "$load" || { tail -n 5 "$SCRATCH/load.said" >&2; fail "the writer was told an error"; }
wait_for 90 "what was written is in the store" is_clean
umount_volume "$SCRATCH/writer"
umount_volume "$SCRATCH/reader"
for name in a b c; do end_proxy "$name"; done
mount_shared alone
work check "$SCRATCH/alone" "$SCRATCH/load" >/dev/null || fail "without the group: what was synced is not there"
end_cluster alone
umount "$SCRATCH/disk-b"
kill "$STORE_PID"
