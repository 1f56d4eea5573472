#!/usr/bin/env bash
# What is wrong with a group of proxies is refused with one line that says what to do, and changes nothing: directories of mounts and volumes, a proxy's directory
# as the cache of a mount, shares and zones that are none, names that mean no member, servers of another release, a group without members.
. "$TESTS/prelude.sh"
. "$TESTS/cluster/cluster.bash"
. "$TESTS/cluster/proxies.bash"

# no_proxy WATCHED DIRECTORY [OPTION...]: refused, and nothing in WATCHED is changed.
no_proxy() {
  refused "$1" "$FOREBAY" proxy --meta "${ASKED:-$(addresses)}" --listen 127.0.0.1:0 --insecure --group fast --cache-size 256MiB --cache-dir "$2" "${@:3}"
}

mkdir "$SCRATCH/store" "$SCRATCH/point"
start_meta a
meta_serves
ask group create fast >/dev/null
ask volume create "$VOLUME_NAME" --store "file://$SCRATCH/store" --group fast >/dev/null

# A group without members: the store is read and written, and `group list` says so.
ask group list | grep -q 'none: volumes are read from the store' || fail "group list does not tell of no members"
mount_shared with-cache --cache-dir "$SCRATCH/cache" --cache-size 64MiB
head -c 3000000 "$FOREBAY" >"$SCRATCH/with-cache/file"
sync "$SCRATCH/with-cache/file"
head -c 3000000 "$FOREBAY" | cmp - "$SCRATCH/with-cache/file" || fail "without members other bytes are read"
umount_volume "$SCRATCH/with-cache"

# Two members with one identity: the disk of one was cloned, so that not even the inode tells. The one that acts goes on; the other one waits a while for it to be gone, and ends.
truncate -s 1G "$SCRATCH/disk.img"
mkfs.ext4 -q -F -m 0 "$SCRATCH/disk.img"
mkdir "$SCRATCH/disk" "$SCRATCH/clone"
mount -o loop "$SCRATCH/disk.img" "$SCRATCH/disk"
PROXY_DIR[twin]=$SCRATCH/disk/member
PROXY_DIR[clone]=$SCRATCH/clone/member
start_proxy twin
wait_for 60 "a member" has_members 1
end_proxy twin
umount "$SCRATCH/disk"
cp --sparse=always "$SCRATCH/disk.img" "$SCRATCH/clone.img"
mount -o loop "$SCRATCH/disk.img" "$SCRATCH/disk"
mount -o loop "$SCRATCH/clone.img" "$SCRATCH/clone"
end() { show_proxies; umount -l "$SCRATCH/disk" "$SCRATCH/clone" 2>/dev/null || true; }
trap end EXIT
start_proxy twin
wait_for 60 "it joins again" has_members 1
start_proxy clone

# The cache of a mount, and a volume.
no_proxy "$SCRATCH/cache" "$SCRATCH/cache"
says "the cache of a mount" "empty or a new directory"
"$FOREBAY" create "$SCRATCH/alone" >/dev/null
no_proxy "$SCRATCH/alone" "$SCRATCH/alone"
says "a volume of one machine" "empty or a new directory"

# A proxy's directory as the cache of a mount.
start_proxy a
wait_for 60 "a member" has_members 2
end_proxy a
refused "$SCRATCH/proxy-a" "$FOREBAY" mount "forebay://$(addresses)/$VOLUME_NAME" "$SCRATCH/point" --insecure --cache-dir "$SCRATCH/proxy-a" --cache-size 64MiB
says "is not a Forebay cache"
! mountpoint -q "$SCRATCH/point" || fail "it was refused, and something is mounted"

# Shares and zones that are none, and what names no member. Four digits of an id do.
start_proxy a
wait_for 60 "it joins again" has_members 2
set_member() { refused "" "$FOREBAY" group set fast "$@" --meta "$(addresses)"; }
set_member "${PROXY_AT[a]}" --weight 0
says "1..=1048576"
set_member "${PROXY_AT[a]}" --zone ''
says "is no zone"
id=$(ask group show fast --json | python3 -c 'import json, sys; print(next(m["id"] for m in json.load(sys.stdin)["members"] if m["address"] == sys.argv[1]))' "${PROXY_AT[a]}")
set_member "${id:0:3}" --weight 7
says "no member '${id:0:3}'" "group show"
ask group set fast "${id:0:4}" --weight 7 --json | grep -q '"weight": 7' || fail "the first digits of an id do not name its member"

# Servers of another release: no directory is made.
python3 "$TESTS/cluster/frames.py" --serve "$SCRATCH/release" &
release=$!
wait_for 20 "a server of another release" test -S "$SCRATCH/release"
ASKED=unix:$SCRATCH/release no_proxy "$SCRATCH/none" "$SCRATCH/none"
says "no common version" "7 to 9"
kill "$release"
wait "$release" 2>/dev/null || true
# What was cloned has given up by itself, in a line; the one that acts is a member still.
! wait "${PROXY_PID[clone]}" || fail "two act for one member"
grep -c "goes on to act for this directory's member" "$SCRATCH/proxy-clone.log" | grep -qx 1 || { tail -n 5 "$SCRATCH/proxy-clone.log" >&2; fail "a cloned member does not say in a line why it ends"; }
grep -q "${PROXY_AT[twin]}" "$SCRATCH/proxy-clone.log" || fail "it does not say who acts"
wait_for 60 "the one that acts to be a member, or one again if it was late" has_members 2
end_proxy twin
umount "$SCRATCH/disk" "$SCRATCH/clone"
end_proxy a
end_cluster
