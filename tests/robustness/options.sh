#!/usr/bin/env bash
# Options out of range or unknown are refused before anything is made.
. "$TESTS/prelude.sh"
for options in '--block-size 1KiB' '--block-size 3MiB' '--block-size 64MiB' '--block-size -5' '--block-size many' \
  '--compression gzip' '--encryption rot13' '--durability never' '--store ftp://somewhere/else' '--store s3://' '--store file://relative'; do
  # shellcheck disable=SC2086
  status=0
  timeout 60 "$FOREBAY" create "$SCRATCH/volume" $options </dev/null >/dev/null 2>"$SCRATCH/refusal" || status=$?
  [ "$status" -ne 0 ] && [ "$status" -lt 124 ] || fail "$options: status $status"
  [ -s "$SCRATCH/refusal" ] || fail "$options: no message"
  ! grep -q panicked "$SCRATCH/refusal" || { cat "$SCRATCH/refusal"; fail "$options: a panic"; }
  [ ! -e "$SCRATCH/volume" ] || fail "$options: something was made"
done
create_volume "$SCRATCH/volume"
mkdir "$SCRATCH/mount"
for options in '--cache-size 5' '--cache-size much' '-o no_such_option' '--cache-dir /proc/nowhere'; do
  status=0
  # shellcheck disable=SC2086
  timeout 60 "$FOREBAY" mount "$SCRATCH/volume" "$SCRATCH/mount" $options </dev/null >/dev/null 2>"$SCRATCH/refusal" || status=$?
  [ "$status" -ne 0 ] && [ "$status" -lt 124 ] || fail "$options: status $status"
  ! mountpoint -q "$SCRATCH/mount" || fail "$options: it is mounted"
done
clean_fsck "$SCRATCH/volume"
