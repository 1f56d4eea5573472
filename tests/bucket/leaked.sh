#!/usr/bin/env bash
# Objects in a bucket that no row names: counted without a change, deleted by gc, and nothing else is.
. "$TESTS/prelude.sh"
trap '[ -z "${S3_SERVER_PID:-}" ] || stop_s3' EXIT
start_s3 "$SCRATCH/s3"
make_bucket "$SCRATCH/s3" forebay-bucket
volume=$SCRATCH/volume mount=$SCRATCH/mount data=$SCRATCH/s3/buckets/forebay-bucket/p/data
create_volume "$volume" --store s3://forebay-bucket/p --durability object
mount_volume "$volume" "$mount"
write_tree "$mount"
"$CONFORMANCE" manifest "$mount" --without-ctime >"$SCRATCH/before"
umount_volume "$mount"
# What a put leaves whose answer was lost: a whole object of this volume under a name that nothing has. Its attributes are the server's.
object=$(find "$data" -type f | sort | sed -n 1p)
leaked=$data/fe/00000001-00000000000000fe
mkdir -p "$data/fe" && cp --preserve=all "$object" "$leaked"
newer=$data/fd/0000ffff-00000000000000fd
mkdir -p "$data/fd" && cp --preserve=all "$object" "$newer"
state_of "$volume" >"$SCRATCH/state-before"
"$FOREBAY" gc --dry-run "$volume" >"$SCRATCH/dry-run"
grep -q '^1 further objects of .* are named by no row$' "$SCRATCH/dry-run" || { cat "$SCRATCH/dry-run"; fail "the dry run"; }
"$FOREBAY" status "$volume" --json >"$SCRATCH/status"
python3 -c 'import json, sys; s = json.load(sys.stdin); assert s["live_bytes"] > 0 and s["dirty_bytes"] == 0, s' <"$SCRATCH/status"
state_of "$volume" >"$SCRATCH/state-after"
cmp "$SCRATCH/state-before" "$SCRATCH/state-after" || fail "looking changed the volume"
[ -e "$leaked" ] || fail "looking deleted something"
# A machine that died leaves its journal in the bucket; gc ships anew before it deletes.
mount_volume "$volume" "$mount"
echo more >"$mount/more" && sync "$mount/more"
kill -9 "$(daemon_of "$mount")"
umount -l "$mount"
rm -f "$newer"
"$FOREBAY" gc "$volume" >"$SCRATCH/gc"
grep -q '^1 further objects of .* 1 are deleted$' "$SCRATCH/gc" || { cat "$SCRATCH/gc"; fail "gc"; }
[ ! -e "$leaked" ] || fail "the leaked object is still there"
clean_fsck "$volume"
mv "$volume" "$SCRATCH/lost"
create_volume "$volume" --recover-from s3://forebay-bucket/p
mount_volume "$volume" "$mount"
[ "$(cat "$mount/more")" = more ] || fail "what was synced is not there"
rm "$mount/more"
"$CONFORMANCE" manifest "$mount" --without-ctime >"$SCRATCH/after"
sed '/^\. /d' "$SCRATCH/before" >"$SCRATCH/before-tree"
sed '/^\. /d' "$SCRATCH/after" >"$SCRATCH/after-tree"
cmp "$SCRATCH/before-tree" "$SCRATCH/after-tree" || { diff "$SCRATCH/before-tree" "$SCRATCH/after-tree" | head -n 20 || true; fail "the tree changed"; }
umount_volume "$mount"
clean_fsck "$volume"
