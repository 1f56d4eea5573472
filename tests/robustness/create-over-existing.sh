#!/usr/bin/env bash
# A volume is never created over another, nor in a directory that holds something.
. "$TESTS/prelude.sh"
create_volume "$SCRATCH/volume"
refused "$SCRATCH/volume" "$FOREBAY" create "$SCRATCH/volume"
says "$SCRATCH/volume" 'volume|exists'
mkdir "$SCRATCH/full" && echo mine >"$SCRATCH/full/file"
refused "$SCRATCH/full" "$FOREBAY" create "$SCRATCH/full"
says "$SCRATCH/full" 'empty'
echo mine >"$SCRATCH/file"
refused "$SCRATCH/file" "$FOREBAY" create "$SCRATCH/file"
refused "" "$FOREBAY" create "$SCRATCH/missing/parent/volume"
[ ! -e "$SCRATCH/missing" ] || fail "parents were made"
