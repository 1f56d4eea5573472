#!/usr/bin/env bash
# The store goes away while mounted: cached data is read, other data is an error, local writes go on and drain later.
. "$TESTS/prelude.sh"
trap '[ -z "${S3_SERVER_PID:-}" ] || stop_s3' EXIT
start_s3 "$SCRATCH/s3"
port=${AWS_ENDPOINT_URL##*:}
make_bucket "$SCRATCH/s3" forebay-bucket
create_volume "$SCRATCH/volume" --store s3://forebay-bucket/v
mount_volume "$SCRATCH/volume" "$SCRATCH/mount" --cache-dir "$SCRATCH/cache" --cache-size 64MiB
head -c 200000000 /dev/urandom >"$SCRATCH/mount/cold"
umount_volume "$SCRATCH/mount"
rm -rf "$SCRATCH/cache"
echo 3 >/proc/sys/vm/drop_caches
mount_volume "$SCRATCH/volume" "$SCRATCH/mount" --cache-dir "$SCRATCH/cache" --cache-size 64MiB
head -c 1000000 /dev/urandom >"$SCRATCH/mount/warm"
sha256sum "$SCRATCH/mount/warm" >"$SCRATCH/warm.sum"
stop_s3
S3_SERVER_PID=
sha256sum --quiet -c "$SCRATCH/warm.sum" || fail "what is cached cannot be read"
status=0
timeout 200 dd if="$SCRATCH/mount/cold" of=/dev/null bs=64k skip=2000 count=1 status=none 2>"$SCRATCH/dd.log" || status=$?
[ "$status" -eq 1 ] || fail "reading what is only in the bucket: status $status"
grep -q 'Input/output error' "$SCRATCH/dd.log" || { cat "$SCRATCH/dd.log"; fail "not EIO"; }
head -c 3000000 /dev/urandom >"$SCRATCH/mount/later"
sync "$SCRATCH/mount/later" || fail "fsync of class local needs the store"
sha256sum "$SCRATCH/mount/later" >"$SCRATCH/later.sum"
start_s3 "$SCRATCH/s3" "$port"
readable() { dd if="$SCRATCH/mount/cold" of=/dev/null bs=64k skip=2000 count=1; }
wait_for 120 "reads to work again" readable
umount_volume "$SCRATCH/mount"
rm -rf "$SCRATCH/cache"
mount_volume "$SCRATCH/volume" "$SCRATCH/mount" --cache-dir "$SCRATCH/cache" --cache-size 64MiB
sha256sum --quiet -c "$SCRATCH/later.sum" "$SCRATCH/warm.sum"
umount_volume "$SCRATCH/mount"
clean_fsck "$SCRATCH/volume"
