#!/usr/bin/env bash
# fio writes with checksums in every block and reads them back: plain, mapped, direct and asynchronous.
. "$TESTS/prelude.sh"
common=(--directory="$DIR" --size=24m --verify=crc32c --verify_fatal=1 --do_verify=1 --randseed=7 --output-format=terse --group_reporting)
# fio leaves files of its own where it is started.
run() { cd "$SCRATCH" && fio "${common[@]}" "$@" >"$SCRATCH/fio.log" 2>&1 || { tail -n 20 "$SCRATCH/fio.log"; fail "fio $*"; }; }
run --name=sync --ioengine=psync --rw=randwrite --bs=4k --numjobs=2 --fsync=64
run --name=mixed --ioengine=psync --rw=randwrite --bsrange=512-96k --bs_unaligned
run --name=mapped --ioengine=mmap --rw=randwrite --bs=4k
run --name=direct --ioengine=psync --direct=1 --rw=randwrite --bs=4k --numjobs=2
run --name=asynchronous --ioengine=libaio --direct=1 --iodepth=16 --rw=randwrite --bs=16k
run --name=stream --ioengine=psync --rw=write --bs=1m --size=128m --end_fsync=1
