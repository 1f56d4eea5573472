#!/usr/bin/env bash
# A volume whose data rests in a bucket, with a cache too small for it: fsx and three applications, then everything is
# read back after a remount with an empty cache, and fsck finds nothing.
. "$TESTS/prelude.sh"
trap '[ -z "${S3_SERVER_PID:-}" ] || stop_s3' EXIT
start_s3 "$SCRATCH/s3"
make_bucket "$SCRATCH/s3" forebay-bucket
volume=$SCRATCH/volume mount=$SCRATCH/mount cache=$SCRATCH/cache passed=0
options=(--cache-dir "$cache" --cache-size 64MiB)
create_volume "$volume" --store s3://forebay-bucket/some/prefix --compression zstd --encryption aes256-gcm
mount_volume "$volume" "$mount" "${options[@]}"
mkdir "$mount/fsx" && SCRATCH=$SCRATCH DIR=$mount/fsx FSX_OPERATIONS=500 bash "$TESTS/conformance/fsx" "$TESTS/conformance/fsx-holes.toml" >"$SCRATCH/fsx-all.log" || { cat "$SCRATCH/fsx-all.log"; fail fsx; }
for application in git sqlite tar; do
  mkdir "$mount/$application" "$SCRATCH/$application"
  DIR=$mount/$application SCRATCH=$SCRATCH/$application bash "$TESTS/applications/$application.sh"
  passed=$((passed + 1))
done
# Four times the cache, so that most must come from the bucket.
head -c 256000000 /dev/urandom >"$mount/large"
sha256sum <"$mount/large" >"$SCRATCH/large.sum"
"$CONFORMANCE" manifest "$mount" >"$SCRATCH/before"
umount_volume "$mount"
[ "$(find "$SCRATCH/s3/buckets/forebay-bucket/some/prefix" -type f | wc -l)" -gt 4 ] || fail "there is hardly anything in the bucket"
clean_fsck "$volume"
rm -rf "$cache"
mount_volume "$volume" "$mount" "${options[@]}"
sha256sum <"$mount/large" | cmp - "$SCRATCH/large.sum"
"$CONFORMANCE" manifest "$mount" >"$SCRATCH/after"
cmp "$SCRATCH/before" "$SCRATCH/after" || { diff "$SCRATCH/before" "$SCRATCH/after" | cut -c1-300 | head -n 20 || true; fail "the tree changed"; }
[ "$(du -sm "$cache" | cut -f1)" -le 100 ] || fail "the cache of 64 MiB takes $(du -sm "$cache" | cut -f1) MiB"
clean_fsck "$volume"
rm -rf "$mount/git" "$mount/large"
umount_volume "$mount"
clean_fsck "$volume"
echo "$((passed + 4)) passed, 0 failed"
