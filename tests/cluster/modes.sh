#!/usr/bin/env bash
# Modes of coherence between two mounts: set by setfattr, inherited, not carried by copies; files of an immutable tree are final from their first close on,
# are filled by everyday tools, and are read again on the other mount from the kernel's memory; those that are open also without a server.
. "$TESTS/prelude.sh"
. "$TESTS/cluster/cluster.bash"
mode_of() { python3 -c 'import os, sys; print(os.getxattr(sys.argv[1], "user.forebay.coherence").decode())' "$1"; }
set_mode() { python3 -c 'import os, sys; os.setxattr(sys.argv[1], "user.forebay.coherence", sys.argv[2].encode())' "$1" "$2"; }
# denied COMMAND...: fails with EPERM.
denied() { ! "$@" 2>"$SCRATCH/denied" || fail "not refused: $*"; grep -q "Operation not permitted" "$SCRATCH/denied" || fail "$*: $(cat "$SCRATCH/denied")"; }
sealed() { [ "$(mode_of "$1")" = sealed ]; }

start_cluster
mount_shared one
mount_shared two
one=$SCRATCH/one two=$SCRATCH/two
mkdir "$one/data" "$one/near"
echo before >"$one/data/before"
set_mode "$one/data" immutable
set_mode "$one/near" close-to-open
[ "$(mode_of "$two/data") $(mode_of "$two/near") $(mode_of "$two/data/before")" = "immutable close-to-open coherent" ]
! set_mode "$one/data" sealed 2>/dev/null || fail "a word that is no mode was taken"
! set_mode "$one/data/before" immutable 2>/dev/null || fail "the mode of a file was set"

# A tree, by tools that write in different ways.
mkdir "$SCRATCH/source"
python3 - "$SCRATCH/source" <<'PYTHON'
import os, sys
for directory in range(4):
    path = os.path.join(sys.argv[1], "dir-%d" % directory)
    os.mkdir(path)
    for number in range(50):
        with open(os.path.join(path, "file-%d" % number), "wb") as file:
            file.write(os.urandom([0, 100, 20000, 3000000][number % 4 if number < 8 else 1 + number % 2]))
PYTHON
cp -a "$SCRATCH/source" "$one/data/copied"
tar -C "$SCRATCH" --format=posix -cf - source | tar -C "$one/data" -xf -
python3 -c 'import shutil, sys; shutil.copytree(sys.argv[1], sys.argv[2])' "$SCRATCH/source" "$one/data/by-python"
for copy in copied source by-python; do
  same_tree "$SCRATCH/source" "$one/data/$copy"
  same_tree "$SCRATCH/source" "$two/data/$copy"
  [ "$(mode_of "$two/data/$copy/dir-3")" = immutable ]
done
find "$one/data" -type f -size +0 ! -name before >"$SCRATCH/files"
all_sealed() { python3 -c 'import os, sys; sys.exit(any(os.getxattr(line.rstrip("\n"), "user.forebay.coherence") != b"sealed" for line in open(sys.argv[1])))' "$SCRATCH/files"; }
wait_for 120 "all files to be sealed" all_sealed

# Final, on both mounts, for root; what is empty is not.
for mount in "$one" "$two"; do
  file=$mount/data/copied/dir-0/file-1
  denied sh -c "echo more >>'$file'"
  denied truncate -s 5 "$file"
  denied cp "$SCRATCH/source/dir-0/file-2" "$file"
  cmp "$SCRATCH/source/dir-0/file-1" "$file"
done
echo now >"$two/data/copied/dir-0/file-0"
[ "$(cat "$one/data/copied/dir-0/file-0")" = now ]
echo after >"$one/data/before"
[ "$(cat "$two/data/before")" = after ]

# Copies do not take the mode along, and moves do not change it.
cp -a "$one/data/copied/dir-1" "$one/plain"
[ "$(mode_of "$two/plain") $(mode_of "$two/plain/file-1")" = "coherent coherent" ]
mv "$one/data/copied/dir-2/file-1" "$one/moved"
sealed "$two/moved"
[ ! -e "$two/data/copied/dir-2/file-1" ]
rm -r "$two/data/by-python"
[ ! -e "$one/data/by-python" ]

# What one machine closes, another opens.
echo near >"$one/near/file"
[ "$(cat "$two/near/file") $(mode_of "$two/near/file")" = "near close-to-open" ]

# Read again after the leases' term: names and attributes are the kernel's; it asks about the directories alone. (Pages may have made room for others.)
requests() { "$FOREBAY" stats "$two" --once --json | python3 -c 'import json, sys; print(sum(op["requests"] for op in json.load(sys.stdin)["operations"] if op["name"] in sys.argv[1:]))' "$@"; }
read_all() { cat "$two"/data/source/dir-*/file-*; }
read_all >"$SCRATCH/first"
# What was looked at before it was sealed is the kernel's for a term only.
sleep 11
read_all | cmp - "$SCRATCH/first"
sleep 11
before=$(requests lookup getattr)
read_all | cmp - "$SCRATCH/first"
after=$(requests lookup getattr)
# The way to the tree, and eight files without bytes, which are not final; not the other 192.
[ $((after - before)) -le 60 ] || fail "$((after - before)) look-ups for a tree that was read before"

# What is open is read on without a server.
python3 - "$two/data/source" "$SCRATCH" <<'PYTHON' &
import os, sys, time
tree, scratch = sys.argv[1:]
names = ["dir-%d/file-%d" % (directory, number) for directory in range(4) for number in (1, 2, 3)]
files = [os.open(os.path.join(tree, name), os.O_RDONLY) for name in names]
open(scratch + "/opened", "w").close()
while not os.path.exists(scratch + "/go"):
    time.sleep(0.05)
for file, name in zip(files, names):
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    with open(os.path.join(scratch, "source", name), "rb") as source:
        wanted = source.read()
    got = b""
    while len(got) < len(wanted):
        got += os.pread(file, 1 << 20, len(got)) or sys.exit(name + " ends")
    assert got == wanted, name
PYTHON
reader=$!
wait_for 60 "the files to be open" test -e "$SCRATCH/opened"
kill_meta a
sleep 11
touch "$SCRATCH/go"
for _ in $(seq 600); do kill -0 "$reader" 2>/dev/null || break; sleep 0.1; done
! kill -0 "$reader" 2>/dev/null || { start_meta a; fail "open sealed files are not read without a server"; }
wait "$reader" || fail "sealed files are not what they were"
start_meta a
meta_serves
same_tree "$SCRATCH/source" "$two/data/source"
end_cluster one two
echo "$(wc -l <"$SCRATCH/files") passed, 0 failed"
