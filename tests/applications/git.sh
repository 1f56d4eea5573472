#!/usr/bin/env bash
# A repository of real sources with history: clone, fsck, gc, branches, and a worktree equal to its source.
. "$TESTS/prelude.sh"
export GIT_AUTHOR_NAME=Test GIT_AUTHOR_EMAIL=test@localhost GIT_COMMITTER_NAME=Test GIT_COMMITTER_EMAIL=test@localhost
origin=$SCRATCH/origin
git init -q -b main "$origin"
for crate in libc rustix serde_json; do
  cp -r "$(crate_sources $crate)" "$origin/$crate"
  git -C "$origin" add -A
  git -C "$origin" commit -q -m "Add $crate"
done
git clone -q --no-hardlinks "file://$origin" "$DIR/clone"
cd "$DIR/clone"
git fsck --full --strict --no-progress
[ -z "$(git status --porcelain)" ] || fail "the clone is not clean"
git checkout -q -b work HEAD~1
find rustix -name '*.rs' | sort | sed -n '1,100p' | while read -r file; do echo "// changed" >>"$file"; done
git mv rustix moved
git commit -q -am "Change and move"
git checkout -q main
git merge -q --no-edit work
git gc -q --prune=now
git repack -q -a -d -f --depth=20
git fsck --full --strict --no-progress
git worktree add -q "$DIR/second" HEAD~1
[ -z "$(git status --porcelain)" ] || fail "the clone is not clean after gc"
git archive --format=tar HEAD | sha256sum >"$SCRATCH/archive"
git clone -q "$DIR/clone" "$SCRATCH/back"
git -C "$SCRATCH/back" archive --format=tar HEAD | sha256sum | diff - "$SCRATCH/archive"
