#!/usr/bin/env bash
# A volume of a newer format is refused, and the message says that the format is newer.
. "$TESTS/prelude.sh"
create_volume "$SCRATCH/volume"
mkdir "$SCRATCH/mount"
# What describes a volume lies at its top: magic (8 bytes) and version (4 bytes), or a text with a version in it.
find "$SCRATCH/volume" -maxdepth 1 -type f -size +11c | sort >"$SCRATCH/files"
refusals=0
while read -r file; do
  rm -rf "$SCRATCH/newer" && cp -a "$SCRATCH/volume" "$SCRATCH/newer"
  /usr/bin/python3 - "$SCRATCH/newer/$(basename "$file")" <<'PYTHON'
import re, sys
content = open(sys.argv[1], "rb").read()
newer = re.sub(rb'("?version"?\s*[:=]\s*)\d+', rb"\g<1>99", content)
if newer == content:
    newer = content[:8] + b"\x63\0\0\0" + content[12:]
open(sys.argv[1], "wb").write(newer)
PYTHON
  refused "$SCRATCH/newer" "$FOREBAY" mount "$SCRATCH/newer" "$SCRATCH/mount"
  ! mountpoint -q "$SCRATCH/mount" || fail "it is mounted"
  if grep -qiE 'newer' "$SCRATCH/refusal"; then
    refusals=$((refusals + 1))
    refused "$SCRATCH/newer" "$FOREBAY" fsck "$SCRATCH/newer"
    says 'newer'
  fi
done <"$SCRATCH/files"
[ "$refusals" -gt 0 ] || { cat "$SCRATCH/files"; fail "no message speaks of a newer format"; }
