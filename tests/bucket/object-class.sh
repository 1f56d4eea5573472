#!/usr/bin/env bash
# Class `object`: after fsync the machine's own files are not needed; the volume comes back from the bucket alone.
. "$TESTS/prelude.sh"
trap '[ -z "${S3_SERVER_PID:-}" ] || stop_s3' EXIT
start_s3 "$SCRATCH/s3"
make_bucket "$SCRATCH/s3" forebay-bucket
create_volume "$SCRATCH/volume" --store s3://forebay-bucket/v --durability object
mount_volume "$SCRATCH/volume" "$SCRATCH/mount"
write_tree "$SCRATCH/mount"
# syncfs(2) does not reach a FUSE file system: every file and directory is synced on its own.
find "$SCRATCH/mount" \( -type f -o -type d \) -exec sync {} +
"$CONFORMANCE" manifest "$SCRATCH/mount" --without-ctime >"$SCRATCH/before"
kill -9 "$(daemon_of "$SCRATCH/mount")"
umount -l "$SCRATCH/mount"
mv "$SCRATCH/volume" "$SCRATCH/lost"
create_volume "$SCRATCH/volume" --recover-from s3://forebay-bucket/v
mount_volume "$SCRATCH/volume" "$SCRATCH/mount"
"$CONFORMANCE" manifest "$SCRATCH/mount" --without-ctime >"$SCRATCH/after"
cmp "$SCRATCH/before" "$SCRATCH/after" || { diff "$SCRATCH/before" "$SCRATCH/after" | head -n 20 || true; fail "the recovered tree differs"; }
umount_volume "$SCRATCH/mount"
clean_fsck "$SCRATCH/volume"
