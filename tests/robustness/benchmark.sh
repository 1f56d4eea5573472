#!/usr/bin/env bash
# The quick benchmark of a mount beside the do-nothing file system, with cold caches: every workload is measured on both. No figure is judged.
. "$TESTS/prelude.sh"
create_volume "$SCRATCH/volume"
mount_volume "$SCRATCH/volume" "$SCRATCH/mount"
"$FOREBAY" bench "$SCRATCH/mount" --null --quick --jobs 2 --json "$SCRATCH/report.json" --html "$SCRATCH/report.html" >"$SCRATCH/table" ||
  { cat "$SCRATCH/table"; fail "the benchmark"; }
/usr/bin/python3 - "$SCRATCH/report.json" <<'PYTHON'
import json, math, sys
report = json.load(open(sys.argv[1]))
names = [result["workload"] for result in report["results"]]
assert len(names) == len(set(names)) == 21, names
for result in report["results"]:
    name, target, reference = result["workload"], result["target"], result["reference"]
    assert target and reference and not result["notes"], result
    assert math.isfinite(result["ratio"]["acknowledged"]) and result["ratio"]["acknowledged"] > 0, result
    assert target["requests"] is not None and target["peak_memory_bytes"] > 0, result
    if name.endswith("-cold"):
        assert "contents in memory" in target["emptied"] and target["cache"]["cold"] == {"names": True, "daemon": True}, result
many = next(result["target"] for result in report["results"] if result["workload"] == "many")
assert many["observed"]["objects"] >= 1 and many["grown"]["metadata_bytes"] > 0, many
PYTHON
grep -q '<svg' "$SCRATCH/report.html" || fail "no plots"
[ -z "$(ls -A "$SCRATCH/mount")" ] || fail "the benchmark left something"
umount_volume "$SCRATCH/mount"
clean_fsck "$SCRATCH/volume"
