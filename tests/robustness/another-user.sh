#!/usr/bin/env bash
# A user other than root mounts his own volume by fusermount3: files, control socket, log and state are his; what is missing is said.
. "$TESTS/prelude.sh"
# fusermount3 opens the device as the user. Where only root may, this case has a device of its own, in a mount namespace of its own.
as_nobody() { setpriv --reuid=nobody --regid=nogroup --clear-groups "$@"; }
if ! as_nobody test -w /dev/fuse && [ -z "${OWN_DEVICE:-}" ]; then
  OWN_DEVICE=1 exec "$TESTS/own-mounts" bash "$0"
fi
own_device() { # MODE
  mountpoint -q "$SCRATCH/dev" || { mkdir "$SCRATCH/dev" && mount -t tmpfs none "$SCRATCH/dev"; }
  [ -e "$SCRATCH/dev/fuse" ] || { mknod "$SCRATCH/dev/fuse" c 10 229 && mount --bind "$SCRATCH/dev/fuse" /dev/fuse; }
  chmod "$1" "$SCRATCH/dev/fuse"
}
[ -z "${OWN_DEVICE:-}" ] || own_device 666
install -m 755 "$FOREBAY" "$SCRATCH/forebay"
home=$SCRATCH/home
install -d -o nobody -g nogroup "$home" "$home/mount" "$home/run"
readonly AS_USER=(setpriv --reuid=nobody --regid=nogroup --clear-groups env -i PATH=/usr/bin:/bin HOME="$home")
user() { "${AS_USER[@]}" "$@"; }

user "$SCRATCH/forebay" create "$home/volume" >"$SCRATCH/create.log"
user "$SCRATCH/forebay" mount "$home/volume" "$home/mount" || fail "a user cannot mount"
options=$(findmnt -n -o FSTYPE,OPTIONS "$home/mount")
for word in fuse.forebay nosuid nodev default_permissions; do
  [[ $options == *$word* ]] || fail "$word is not in: $options"
done
user sh -c 'mkdir "$HOME/mount/dir" && echo hello >"$HOME/mount/dir/file" && [ "$(stat -c %U "$HOME/mount/dir/file")" = nobody ]'
! ls "$home/mount" >/dev/null 2>&1 || fail "root sees a mount without allow_other"
log=$(user "$SCRATCH/forebay" status "$home/mount" --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["log"])')
[[ $log == $home/.local/state/forebay/* ]] && [ -s "$log" ] || fail "the log is $log"
user "$SCRATCH/forebay" stats "$home/mount" --once >"$SCRATCH/told"
grep -q '^create ' "$SCRATCH/told" || fail "stats"
"$FOREBAY" status "$home/mount" >"$SCRATCH/told"
grep -q 'process ' "$SCRATCH/told" || fail "root does not reach the process of a user"
user "$SCRATCH/forebay" umount "$home/mount"
! mountpoint -q "$home/mount" || fail "still mounted"

# The kernel reads files by itself for root alone; without, they are read as ever.
user "$SCRATCH/forebay" mount "$home/volume" "$home/mount" --passthrough-size 64MiB >"$SCRATCH/told"
grep -q "no passthrough: it needs root's CAP_SYS_ADMIN" "$SCRATCH/told" || fail "mount does not say what passthrough needs"
user sh -c 'head -c 3000000 /dev/urandom >"$HOME/large" && cp "$HOME/large" "$HOME/mount/large"'
for _ in 1 2 3; do user cmp "$home/large" "$home/mount/large"; done
user "$SCRATCH/forebay" umount "$home/mount"

# Directories that the user chose; found from a shell that knows nothing of them, too.
chosen() { user XDG_RUNTIME_DIR="$home/run" XDG_STATE_HOME="$home/state" "$@"; }
chosen "$SCRATCH/forebay" mount "$home/volume" "$home/mount"
ls "$home"/run/forebay/*.sock "$home"/state/forebay/*.log >/dev/null || fail "not in the directories that were chosen"
[ "$(stat -c %a "$home/run/forebay")" = 700 ] || fail "others may enter the directory of the socket"
for environment in user chosen; do
  "$environment" "$SCRATCH/forebay" status "$home/mount" >"$SCRATCH/told" || fail "$environment: not found"
done
"$FOREBAY" status "$home/mount" >"$SCRATCH/told" || fail "root does not find it"
[ "$(user cat "$home/mount/dir/file")" = hello ] || fail "a remount lost something"
user "$SCRATCH/forebay" umount "$home/mount"
! mountpoint -q "$home/mount" || fail "still mounted"
! ls "$home"/run/forebay/*.sock 2>/dev/null || fail "the socket was left"

# What is missing.
if ! grep -qx 'user_allow_other' /etc/fuse.conf 2>/dev/null; then
  refused "" "${AS_USER[@]}" "$SCRATCH/forebay" mount "$home/volume" "$home/mount" -o allow_other
  says 'user_allow_other' '/etc/fuse.conf'
fi
install -d "$home/of-root"
refused "" "${AS_USER[@]}" "$SCRATCH/forebay" mount "$home/volume" "$home/of-root"
says "$home/of-root" 'write'
refused "" "${AS_USER[@]}" PATH=/nowhere "$SCRATCH/forebay" mount "$home/volume" "$home/mount"
says 'fusermount3' 'fuse3'
if [ -n "${OWN_DEVICE:-}" ]; then
  own_device 600
  refused "" "${AS_USER[@]}" "$SCRATCH/forebay" mount "$home/volume" "$home/mount"
  says '/dev/fuse' 'chmod'
fi
user "$SCRATCH/forebay" fsck "$home/volume" >"$SCRATCH/fsck.log" || { cat "$SCRATCH/fsck.log"; fail "fsck"; }
