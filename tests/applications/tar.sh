#!/usr/bin/env bash
# tar with attributes and ACLs, there and back.
. "$TESTS/prelude.sh"
source=$SCRATCH/source
mkdir "$source"
for crate in libc object_store serde; do cp -r "$(crate_sources $crate)" "$source/"; done
cd "$source"
find . -name '*.rs' | sort | sed -n '1,30p' | while read -r file; do setfattr -n user.note -v "$file" "$file"; done
find . -name '*.toml' | sort | sed -n '1,10p' | while read -r file; do setfacl -m u:nobody:rw,m::r "$file"; done
setfacl -d -m g:daemon:rx .
find . -name lib.rs | sort | sed -n '1,5p' | while read -r file; do ln "$file" "$file.link"; ln -s lib.rs "$file.symbolic"; chmod 2711 "$file"; done
mknod device c 1 3 && mkfifo pipe
truncate -s 100M sparse && printf end >>sparse
tar --xattrs --xattrs-include='*' --acls --numeric-owner -S -cf "$SCRATCH/source.tar" .
mkdir "$DIR/out"
tar --xattrs --xattrs-include='*' --acls --numeric-owner -xpf "$SCRATCH/source.tar" -C "$DIR/out"
same_tree "$source" "$DIR/out"
tar --xattrs --xattrs-include='*' --acls --numeric-owner -S -cf "$DIR/again.tar" -C "$DIR/out" .
mkdir "$SCRATCH/back"
tar --xattrs --xattrs-include='*' --acls --numeric-owner -xpf "$DIR/again.tar" -C "$SCRATCH/back"
same_tree "$source" "$SCRATCH/back"
tar -C "$DIR/out" -czf "$DIR/packed.tar.gz" libc-* && tar -tzf "$DIR/packed.tar.gz" >/dev/null
