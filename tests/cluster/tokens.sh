#!/usr/bin/env bash
# What tokens leave out, on real mounts: a directory of the volume as the root, out of which nothing leads; read-only, noexec, a root user who is
# nobody; and a token that is revoked while it is in use.
. "$TESTS/prelude.sh"
. "$TESTS/cluster/cluster.bash"

# token NAME [OPTION...]: makes one for a file $SCRATCH/NAME.token.
token() {
  local name=$1
  shift
  "$FOREBAY" token create "$VOLUME_NAME" --meta "$(addresses)" "$@" >"$SCRATCH/$name.token" 2>"$SCRATCH/token.log" || { cat "$SCRATCH/token.log" >&2; fail "token create $*"; }
}

# mount_with NAME [OPTION...]: makes a token, and mounts by it.
mount_with() {
  token "$@"
  mount_shared "$1" --token "$SCRATCH/$1.token" --log "$SCRATCH/$1.log"
}

# refused ERROR COMMAND...: the command fails, and says this.
refused() {
  local said=$1
  shift
  if "$@" >"$SCRATCH/said" 2>&1; then fail "was not refused: $*"; fi
  grep -q "$said" "$SCRATCH/said" || { cat "$SCRATCH/said" >&2; fail "was refused otherwise: $*"; }
}

# as USER COMMAND...
as() { setpriv --reuid "$1" --regid "$1" --clear-groups "${@:2}"; }

options_of() { findmnt -n -o OPTIONS "$SCRATCH/$1"; }

start_cluster
mount_shared all
chmod 777 "$SCRATCH/all"
mkdir "$SCRATCH/all/home"
mount_with part --root /home
python3 "$TESTS/cluster/tokens.py" "$SCRATCH/all" "$SCRATCH/part" home >"$SCRATCH/escapes.log" 2>&1 || { cat "$SCRATCH/escapes.log" >&2; exit 1; }

# Moved by somebody else, the directory stays the root of those who have it; one who comes now finds none.
mkdir "$SCRATCH/all/elsewhere"
mv "$SCRATCH/all/home" "$SCRATCH/all/elsewhere/moved"
[ "$(cat "$SCRATCH/part/below/own")" = own ] || fail "the part was lost when its directory was moved"
echo new >"$SCRATCH/part/new"
[ "$(cat "$SCRATCH/all/elsewhere/moved/new")" = new ]
mkdir -p "$SCRATCH/late"
refused "'/home' that the token shows is not there" "$FOREBAY" mount "forebay://$(addresses)/$VOLUME_NAME" "$SCRATCH/late" --insecure --token "$SCRATCH/part.token"
# Removed, nothing is there any more, and nothing hangs.
mv "$SCRATCH/all/elsewhere/moved" "$SCRATCH/all/home"
rm -r "$SCRATCH/all/home"/*
rmdir "$SCRATCH/all/home"
refused "Stale file handle" timeout 60 ls "$SCRATCH/part"
umount_volume "$SCRATCH/part"

# ro and noexec are the kernel's business, remounted or not.
mkdir "$SCRATCH/all/home"
echo '#!/bin/sh' >"$SCRATCH/all/home/program"
chmod 755 "$SCRATCH/all/home/program"
mount_with reader --root /home --read-only --no-exec
[[ ,$(options_of reader), == *,ro,* && ,$(options_of reader), == *,noexec,* ]] || fail "mounted as $(options_of reader)"
[ "$(cat "$SCRATCH/reader/program")" = '#!/bin/sh' ]
refused "Permission denied" "$SCRATCH/reader/program"
changes() {
  local said=$1
  refused "$said" touch "$SCRATCH/reader/new"
  refused "$said" mkdir "$SCRATCH/reader/new"
  refused "$said" mv "$SCRATCH/reader/program" "$SCRATCH/reader/new"
  refused "$said" ln "$SCRATCH/reader/program" "$SCRATCH/reader/new"
  refused "$said" rm -f "$SCRATCH/reader/program"
  refused "$said" chmod 700 "$SCRATCH/reader/program"
  refused "$said" truncate -s 0 "$SCRATCH/reader/program"
  refused "$said" setfattr -n user.a -v b "$SCRATCH/reader/program"
}
changes "Read-only file system"
mount -o remount,rw "$SCRATCH/reader" 2>/dev/null || true
changes "Read-only file system"

# A root user who is nobody has what modes give to everybody.
chmod 777 "$SCRATCH/all/home"
install -d -o 1000 -g 1000 -m 700 "$SCRATCH/all/home/private"
as 1000 sh -c "echo secret >'$SCRATCH/all/home/private/file'; chmod 644 '$SCRATCH/all/home/private/file'"
as 1000 sh -c "echo secret >'$SCRATCH/all/home/closed'; chmod 600 '$SCRATCH/all/home/closed'; echo open >'$SCRATCH/all/home/open'; chmod 644 '$SCRATCH/all/home/open'"
mount_with squashed --root /home --root-squash
[ "$(as 1000 cat "$SCRATCH/squashed/private/file")" = secret ]
refused "Permission denied" cat "$SCRATCH/squashed/private/file"
refused "Permission denied" ls "$SCRATCH/squashed/private"
refused "Permission denied" cat "$SCRATCH/squashed/closed"
[ "$(cat "$SCRATCH/squashed/open")" = open ]
refused "Permission denied" sh -c "echo more >>'$SCRATCH/squashed/open'"
refused "Permission denied" truncate -s 0 "$SCRATCH/squashed/open"
refused "Operation not permitted" chmod 666 "$SCRATCH/squashed/open"
refused "Operation not permitted" chown 0 "$SCRATCH/squashed/open"
refused "Operation not permitted" chown 65534 "$SCRATCH/squashed/open"
refused "Permission denied" touch "$SCRATCH/squashed/private/new"
echo own >"$SCRATCH/squashed/own"
[ "$(stat -c %u:%g "$SCRATCH/squashed/own")" = 65534:65534 ] || fail "a file of the root user is $(stat -c %u:%g "$SCRATCH/squashed/own")"
chmod 600 "$SCRATCH/squashed/own"
[ "$(cat "$SCRATCH/squashed/own")" = own ]
as 1000 rm "$SCRATCH/squashed/closed"
umount_volume "$SCRATCH/squashed"

# A token that is revoked ends its mounts, which say so; others go on.
mount_with other
echo kept >"$SCRATCH/other/kept"
"$FOREBAY" token list --meta "$(addresses)" --json >"$SCRATCH/tokens.json"
id=$(python3 -c 'import json, sys; print(next(token["id"] for token in json.load(open(sys.argv[1])) if token["read_only"]))' "$SCRATCH/tokens.json")
"$FOREBAY" token revoke "$id" --meta "$(addresses)" >"$SCRATCH/revoke.log" 2>&1 || { cat "$SCRATCH/revoke.log" >&2; fail "token revoke"; }
says_so() { "$FOREBAY" status "$SCRATCH/reader" >"$SCRATCH/status" && grep -q 'error .*was revoked' "$SCRATCH/status"; }
wait_for 60 "the status to say that the token was revoked" says_so
refused "Permission denied" timeout 60 cat "$SCRATCH/reader/program"
grep -q 'the servers refuse this mount.*was revoked' "$SCRATCH/reader.log" || { cat "$SCRATCH/reader.log" >&2; fail "the log does not say it"; }
[ "$(cat "$SCRATCH/other/kept")" = kept ]
end_cluster reader other all
tail -n 1 "$SCRATCH/escapes.log"
