#!/usr/bin/env bash
# Class replica on machines of their own: three proxies, three mounts, two metadata servers over PostgreSQL and a store that speaks S3, each in a network
# namespace, with certificates and tokens; mounts and proxies have links that are capped well under what the processors can do. While fio writes and verifies, writers
# sync and everybody checks everybody else, proxies are killed, stopped, cut off, filled up and lose a disk, the store is slow, and a server
# is killed. Nobody is told an error; what was synced is there for the other machines; in the end the store alone has all of it.
. "$TESTS/prelude.sh"
. "$TESTS/cluster/net.bash"
. "$TESTS/cluster/work.bash"
. "$TESTS/cluster/postgres.bash"
. "$TESTS/cluster/site.bash"
. "$TESTS/cluster/members.bash"

readonly NODE_MBIT=${NODE_MBIT:-100} PROXY_MBIT=${PROXY_MBIT:-400}
MEMBERS=(proxy1 proxy2 proxy3)
declare -A FIO WRITER CHECK NEXT=([node1]=node2 [node2]=node3 [node3]=node1)

make_disk() {
  truncate -s 1500M "$SCRATCH/$1.img"
  mkfs.ext4 -q -F -m 0 "$SCRATCH/$1.img"
  mkdir "$SCRATCH/disk-$1"
  mount -o loop "$SCRATCH/$1.img" "$SCRATCH/disk-$1"
}

# ---- who works -----------------------------------------------------------------------------------------------------

# fio_job NODE OF NUMBER OPTION...: a file of OF, on NODE; what it writes and how follows from the number.
fio_job() {
  local -a kinds=(write randwrite) sizes=(4k 16k 64k 256k)
  (cd "$SCRATCH/fio-$1" && fio --ioengine=psync --size=3m --verify=crc32c --verify_fatal=1 --output=/dev/null --directory="$SCRATCH/$1/fio-$2" --name="f$3" \
    --rw="${kinds[$(($3 / 4 % 2))]}" --bs="${sizes[$(($3 % 4))]}" --randseed="$3" "${@:4}") >>"$SCRATCH/fio-$1-$2.log" 2>&1
}

# fio_on NODE NEXT: fio writes a file after the other, with syncs, and verifies it; then it verifies the newest one of another machine.
fio_on() {
  local number=0 theirs
  while [ ! -e "$STATE/fio-stop" ]; do
    number=$((number + 1))
    fio_job "$1" "$1" "$number" --fsync=8 --do_verify=1 || { echo "file $number failed on $1"; return 1; }
    echo "$number" >"$STATE/fio-$1.new" && mv "$STATE/fio-$1.new" "$STATE/fio-$1"
    theirs=$(cat "$STATE/fio-$2" 2>/dev/null || echo 0)
    [ "$theirs" = 0 ] || fio_job "$1" "$2" "$theirs" --verify_only --allow_file_create=0 || { echo "file $theirs of $2 failed on $1"; return 1; }
    [ "$number" -le 6 ] || rm -f "$SCRATCH/$1/fio-$1/f$((number - 6)).0.0"
  done
}

start_fio() { # NODE
  fio_on "$1" "${NEXT[$1]}" </dev/null >"$SCRATCH/fio-$1.said" 2>&1 &
  FIO[$1]=$!
}

start_loads() {
  local name
  for name in "${NODES[@]}"; do
    mkdir "$SCRATCH/fio-$name" "$SCRATCH/$name/fio-$name" "$SCRATCH/$name/synced-$name"
  done
  for name in "${NODES[@]}"; do start_fio "$name"; done
}

# begin HARM, finish HARM: a writer on each machine, which ends without an error, and what it synced is there for the next one.
begin() {
  local name
  for name in "${NODES[@]}"; do
    python3 "$TESTS/cluster/writeback.py" write "$SCRATCH/$name/synced-$name" "$SCRATCH/$1-$name" >"$SCRATCH/$1-$name.said" 2>&1 &
    WRITER[$name]=$!
  done
  for name in "${NODES[@]}"; do wait_for 60 "the writer of $name to begin" test -s "$SCRATCH/$1-$name"; done
}
synced() { wc -l <"$SCRATCH/$1"; }
has_synced_since() { [ "$(synced "$1")" -gt "$2" ]; }

# all_go_on [NODE...]: everybody's work goes on, and no fio has failed.
all_go_on() {
  local name now
  local -a nodes=("$@")
  [ "$#" -gt 0 ] || nodes=("${NODES[@]}")
  for name in "${nodes[@]}"; do
    now=$(synced "$HARM-$name")
    wait_for 60 "the writer of $name to go on" has_synced_since "$HARM-$name" "$((now + 2))"
    kill -0 "${FIO[$name]}" 2>/dev/null || { cat "$SCRATCH/fio-$name.said" >&2; fail "fio on $name has failed"; }
  done
  goes_on "${nodes[@]}"
}

finish() {
  local name
  for name in "${NODES[@]}"; do touch "$SCRATCH/$1-$name.stop"; done
  for name in "${NODES[@]}"; do
    wait "${WRITER[$name]}" || { tail -n 5 "$SCRATCH/$1-$name.said" >&2; fail "$1: the writer of $name was told an error"; }
  done
  # All at once: each machine has a link of its own.
  for name in "${NODES[@]}"; do
    timeout 90 python3 "$TESTS/cluster/writeback.py" check "$SCRATCH/${NEXT[$name]}/synced-$name" "$SCRATCH/$1-$name" >"$SCRATCH/$1-$name.checked" &
    CHECK[$name]=$!
  done
  for name in "${NODES[@]}"; do wait "${CHECK[$name]}" || fail "$1: what $name synced is not there on ${NEXT[$name]}"; done
}

end() {
  local status=$? name
  [ "$status" -eq 0 ] || {
    show_work
    tail -n 12 "$SCRATCH"/meta?.log "$SCRATCH"/node?.log "$SCRATCH"/proxy?.log
    tail -n 5 "$SCRATCH"/fio-*.log
  } >&2 || true
  touch "$STATE/fio-stop" || true
  kill -CONT "${PROXY_PID[@]}" "${S3_SERVER_PID:-}" 2>/dev/null || true
  kill "${FIO[@]}" "${WRITER[@]}" 2>/dev/null || true
  end_site
}
trap end EXIT

# ---- what happens --------------------------------------------------------------------------------------------------

proxy_killed() {
  kill_proxy proxy1
  all_go_on
  start_proxy proxy1
  wait_for 60 "it joins again with what it has" has_members 3
}

proxy_stopped() {
  kill -STOP "${PROXY_PID[proxy2]}"
  all_go_on
  wait_for 60 "the stopped one is counted out" has_members 2
  kill -CONT "${PROXY_PID[proxy2]}"
  wait_for 60 "it joins again" has_members 3
}

proxy_cut_off() {
  unplug proxy3
  all_go_on
  wait_for 60 "the one that is cut off is counted out" has_members 2
  plug proxy3
  wait_for 60 "it joins again" has_members 3
}

proxy_without_servers() {
  lose proxy1 meta1
  lose proxy1 meta2
  wait_for 60 "the one without servers is counted out" has_members 2
  all_go_on
  deliver proxy1 meta1
  deliver proxy1 meta2
  wait_for 60 "it joins again" has_members 3
}

node_without_proxy() {
  lose node1 proxy1
  all_go_on
  sleep 4
  all_go_on
  deliver node1 proxy1
}

disk_full() {
  dd if=/dev/zero of="$SCRATCH/disk-proxy2/filled" bs=1M 2>/dev/null || true
  all_go_on
  sleep 3
  all_go_on
  rm "$SCRATCH/disk-proxy2/filled"
}

# All of a proxy's disk is gone, with what was acknowledged a moment ago. It is the first: what was given up at another member's end has a copy less until it is stored.
disk_lost() {
  kill_proxy proxy3
  rm -rf "$SCRATCH/disk-proxy3/member"
  start_proxy proxy3
  all_go_on
  wait_for 60 "the lost one is counted out, and the new one in" has_members 3
}

store_slow() {
  cap_link s3 4
  all_go_on
  sleep 5
  all_go_on
  cap_link s3 800
}

# What only they have is waited for until one of them is back; writers go to the store.
all_killed() {
  local name
  for name in "${MEMBERS[@]}"; do kill -KILL "${PROXY_PID[$name]}"; done
  for name in "${MEMBERS[@]}"; do wait "${PROXY_PID[$name]}" 2>/dev/null || true; done
  for name in "${NODES[@]}"; do wait_for 60 "the writer of $name to go on" has_synced_since "$HARM-$name" "$(($(synced "$HARM-$name") + 2))"; done
  for name in "${MEMBERS[@]}"; do start_proxy "$name"; done
  wait_for 90 "all join again" has_members 3
}

# ---- all of it -----------------------------------------------------------------------------------------------------

start_site
for name in "${MEMBERS[@]}"; do make_disk "$name"; done
for name in "${NODES[@]}"; do cap_link "$name" "$NODE_MBIT"; done
for name in "${MEMBERS[@]}"; do cap_link "$name" "$PROXY_MBIT"; done
start_group
set_up_work "${NODES[@]}"
say "all is there"
start_work "${NODES[@]}"
start_loads
for HARM in ${WHAT:-disk_lost proxy_killed proxy_stopped server_killed proxy_cut_off disk_full node_without_proxy proxy_without_servers store_slow all_killed}; do
  say "$HARM"
  begin "$HARM"
  "$HARM"
  all_go_on
  finish "$HARM"
done

say "all that was recorded"
touch "$STATE/fio-stop"
for name in "${NODES[@]}"; do wait "${FIO[$name]}" || { cat "$SCRATCH/fio-$name.said" >&2; fail "fio on $name has failed"; }; done
end_work "${NODES[@]}"
wait_for 90 "nothing is dirty" is_clean
for name in "${NODES[@]}"; do umount_volume "$SCRATCH/$name"; done
end_group

say "the store alone has it"
for name in "${NODES[@]}"; do mount_node "$name"; done
timeout 120 python3 "$WORK" verify "$SCRATCH/node2" "$STATE" || fail "without the group: what was recorded is not there"
check_all_of() { # NODE
  local log
  for log in "$SCRATCH"/*-"$1"; do
    [ -f "$log" ] || continue
    timeout 120 python3 "$TESTS/cluster/writeback.py" check "$SCRATCH/$1/synced-$1" "$log" >/dev/null || { echo "without the group: what ${log##*/} says is not there" >&2; return 1; }
  done
}
for name in "${NODES[@]}"; do
  check_all_of "$name" &
  CHECK[$name]=$!
done
for name in "${NODES[@]}"; do wait "${CHECK[$name]}" || fail "the store alone has not all that $name synced"; done
end_in_order
for name in "${MEMBERS[@]}"; do umount "$SCRATCH/disk-$name"; done
say "done"
