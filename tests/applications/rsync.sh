#!/usr/bin/env bash
# rsync -aHAX of a tree with links, ACLs and attributes: equal, and the second time nothing to do.
. "$TESTS/prelude.sh"
source=$SCRATCH/source
cp -r "$(crate_sources rustix)" "$source"
cd "$source"
find . -name '*.rs' | sort | sed -n '1,20p' | while read -r file; do ln "$file" "$file.hard"; done
ln -s src link
ln -s nowhere dangling
setfacl -m u:nobody:r,g:daemon:rw Cargo.toml
setfacl -d -m u:nobody:rx,g:daemon:rwx src
setfattr -n user.colour -v green README.md
setfattr -n user.empty src
mkfifo pipe
chmod 4755 README.md
truncate -s 20M sparse
printf data | dd of=sparse bs=1 seek=15000000 conv=notrunc status=none
touch -d '2001-02-03 04:05:06.123456789' Cargo.toml src
# Without a window of -1 rsync leaves a time alone that differs by less than a second.
rsync -@-1 -aHAXS --numeric-ids "$source/" "$DIR/copy/"
same_tree "$source" "$DIR/copy"
rsync -@-1 -aHAXSi --checksum --numeric-ids "$source/" "$DIR/copy/" >"$SCRATCH/second"
[ ! -s "$SCRATCH/second" ] || { head "$SCRATCH/second"; fail "the second rsync had work to do"; }
rm -rf "$source/src" && echo more >>"$source/Cargo.toml"
rsync -@-1 -aHAXS --delete --inplace --numeric-ids "$source/" "$DIR/copy/"
same_tree "$source" "$DIR/copy"
rsync -@-1 -aHAXS --numeric-ids "$DIR/copy/" "$SCRATCH/back/"
same_tree "$DIR/copy" "$SCRATCH/back"
