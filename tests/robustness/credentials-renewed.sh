#!/usr/bin/env bash
# Credentials expire while mounted and are renewed in the file that they came from.
. "$TESTS/prelude.sh"
trap '[ -z "${S3_SERVER_PID:-}" ] || stop_s3' EXIT
start_s3 "$SCRATCH/s3"
port=${AWS_ENDPOINT_URL##*:}
make_bucket "$SCRATCH/s3" forebay-bucket
write_credentials() { printf '[default]\naws_access_key_id = %s\naws_secret_access_key = %s\n' "$1" "$2" >"$SCRATCH/credentials.new" && mv "$SCRATCH/credentials.new" "$SCRATCH/credentials"; }
write_credentials "$AWS_ACCESS_KEY_ID" "$AWS_SECRET_ACCESS_KEY"
unset AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY
export AWS_SHARED_CREDENTIALS_FILE=$SCRATCH/credentials
create_volume "$SCRATCH/volume" --store s3://forebay-bucket/v
mount_volume "$SCRATCH/volume" "$SCRATCH/mount" --cache-dir "$SCRATCH/cache" --cache-size 64MiB
head -c 20000000 /dev/urandom >"$SCRATCH/mount/first"
stop_s3
S3_SERVER_ACCESS=renewed S3_SERVER_SECRET=renewed-secret start_s3 "$SCRATCH/s3" "$port"
head -c 20000000 /dev/urandom >"$SCRATCH/mount/second"
(cd "$SCRATCH/mount" && sha256sum first second) >"$SCRATCH/sums"
write_credentials renewed renewed-secret
unset AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY
umount_volume "$SCRATCH/mount"
rm -rf "$SCRATCH/cache"
mount_volume "$SCRATCH/volume" "$SCRATCH/mount" --cache-dir "$SCRATCH/cache" --cache-size 64MiB
(cd "$SCRATCH/mount" && sha256sum --quiet -c "$SCRATCH/sums")
umount_volume "$SCRATCH/mount"
clean_fsck "$SCRATCH/volume"
