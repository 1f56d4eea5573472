# Machines of their own, all on this one: each is a network namespace at one switch, which is a namespace too. After prelude.sh; not a case itself.
#
# A namespace here has no name and no file: it lives as long as the process that holds it, whose command line names SCRATCH. So nothing of it outlives the
# run, however that ends, and nothing outside is reached from it: no machine has a route but to the others.

readonly NETWORK=10.77.0
declare -A MACHINE FAR

address_of() { # MACHINE
  case $1 in
    meta1) echo "$NETWORK.11" ;; meta2) echo "$NETWORK.12" ;;
    db) echo "$NETWORK.20" ;; s3) echo "$NETWORK.30" ;;
    proxy1) echo "$NETWORK.51" ;; proxy2) echo "$NETWORK.52" ;; proxy3) echo "$NETWORK.53" ;; proxy4) echo "$NETWORK.54" ;;
    node1) echo "$NETWORK.41" ;; node2) echo "$NETWORK.42" ;; node3) echo "$NETWORK.43" ;; node4) echo "$NETWORK.44" ;;
    *) fail "there is no machine $1" ;;
  esac
}

# Which proxies are on the machine of a mount is told by sockets in a directory, which these machines would share.
# on MACHINE COMMAND..., and run_on MACHINE COMMAND... &, after which $! is the command.
on() { nsenter --net="/proc/${MACHINE[$1]}/ns/net" env "FOREBAY_PROXY_DIR=$SCRATCH/here-$1" "${@:2}"; }
run_on() { exec nsenter --net="/proc/${MACHINE[$1]}/ns/net" env "FOREBAY_PROXY_DIR=$SCRATCH/here-$1" "${@:2}"; }

# hold_machine NAME: a namespace, with a process that does nothing but be in it.
hold_machine() {
  unshare --net bash -c 'exec -a "$0" sleep infinity' "$SCRATCH/machine-$1" </dev/null >/dev/null 2>&1 &
  MACHINE[$1]=$!
  is_apart() { [ "$(readlink "/proc/${MACHINE[$1]}/ns/net")" != "$(readlink /proc/self/ns/net)" ]; }
  wait_for 20 "a namespace" is_apart "$1"
  on "$1" ip link set lo up
}

make_switch() {
  hold_machine switch
  on switch ip link add bridge type bridge stp_state 0 forward_delay 0
  on switch ip link set bridge up
}

# make_machine NAME: at the switch, with its address.
make_machine() {
  hold_machine "$1"
  ip link add "$1" netns "${MACHINE[switch]}" type veth peer name net netns "${MACHINE[$1]}"
  on switch ip link set "$1" master bridge
  on switch ip link set "$1" up
  on "$1" ip address add "$(address_of "$1")/24" dev net
  on "$1" ip link set net up
}

# unplug MACHINE, plug MACHINE: its cable at the switch.
unplug() { on switch ip link set "$1" down; }
plug() { on switch ip link set "$1" up; }

# cap_link MACHINE MBIT: what the machine's cable carries, each way; 1 Mbit/s is 125,000 bytes. Another cap takes the place of the former one.
cap_link() {
  local of=(root tbf rate "$2mbit" burst 64k latency 40ms)
  on "$1" tc qdisc replace dev net "${of[@]}"
  on switch tc qdisc replace dev "$1" "${of[@]}"
}

# lose A B, deliver A B: what B sends to A is lost on the way, and nobody is told.
lose() { on "$2" ip route add blackhole "$(address_of "$1")/32"; }
deliver() { on "$2" ip route del blackhole "$(address_of "$1")/32"; }

# start_far MACHINE LISTEN SERVER MILLISECONDS: the delaying relay, on that machine; tell_far MACHINE WORDS.
start_far() {
  mkfifo "$SCRATCH/far-$1"
  # It has both ends open itself, so that it goes on when nobody tells it anything.
  run_on "$1" bash -c 'exec -a "$0" "$@"' "$SCRATCH/relay-$1" "$FAR_LINK" "$2" "$3" "$4" <>"$SCRATCH/far-$1" >"$SCRATCH/far-$1.log" 2>&1 &
  FAR[$1]=$!
  wait_for 20 "the relay of $1" grep -q . "$SCRATCH/far-$1.log"
}
tell_far() { echo "${*:2}" >"$SCRATCH/far-$1"; }
find_far_link
