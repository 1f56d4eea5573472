#!/usr/bin/env bash
# cp, find, grep, du, mv, sort, dd and ls see the same as on ext4.
. "$TESTS/prelude.sh"
source=$(crate_sources libc)
cp -a "$source" "$SCRATCH/there"
cp -a --reflink=auto "$source" "$DIR/here"
cp -a --reflink=auto --sparse=always "$DIR/here" "$DIR/again"
same_tree "$SCRATCH/there" "$DIR/here"
for directory in "$SCRATCH/there" "$DIR/here" "$DIR/again"; do
  (cd "$directory" && find . -type f -printf '%P %s %m\n' | sort && grep -rc 'pub const' . | sort &&
    find . -type d | wc -l && ls -R | sort) >"$SCRATCH/seen-$(basename "$directory")"
done
cmp "$SCRATCH/seen-there" "$SCRATCH/seen-here"
cmp "$SCRATCH/seen-there" "$SCRATCH/seen-again"
[ "$(du -s -B1 "$DIR/here" | cut -f1)" -gt 1000000 ] || fail "du counts no blocks"
head -c 30000000 /dev/urandom >"$DIR/random"
cp --reflink=auto "$DIR/random" "$DIR/copied" && cmp "$DIR/random" "$DIR/copied"
dd if="$DIR/random" of="$DIR/direct" bs=1M oflag=direct conv=fsync status=none && cmp "$DIR/random" "$DIR/direct"
cat "$DIR/random" "$DIR/random" | sha256sum >"$SCRATCH/sum"
cat "$DIR/copied" "$DIR/direct" | sha256sum | cmp - "$SCRATCH/sum"
seq 200000 | shuf --random-source=<(yes) >"$DIR/numbers" && sort -n -S 4M -T "$DIR" "$DIR/numbers" | cmp - <(seq 200000)
mv "$DIR/again" "$SCRATCH/moved" && mv "$SCRATCH/moved" "$DIR/again" && same_tree "$DIR/here" "$DIR/again"
install -D -m 640 "$DIR/numbers" "$DIR/a/b/c/numbers" && truncate -s 5 "$DIR/a/b/c/numbers" && [ "$(wc -c <"$DIR/a/b/c/numbers")" = 5 ]
rm -r "$DIR/again" && [ ! -e "$DIR/again" ]
