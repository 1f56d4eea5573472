#!/usr/bin/env bash
# The page docs/many-machines.md, as it is: its blocks are run in order, each on the machines that the comment above it names (`<!-- on: … -->`), which are
# namespaces with a network, mounts, /etc, /run, /srv, /mnt and a host name of their own. Other than on the page are the bucket and its credentials alone. What such machines
# lack is stood in for below: packages, ssh and scp between them, and systemd, whose units are verified by it and then started by their own lines.
. "$TESTS/prelude.sh"
. "$TESTS/cluster/net.bash"

# Nothing that the page does not say.
for name in "${!FOREBAY_@}"; do [ "$name" = FOREBAY_PORTS ] || unset "$name"; done
unset http_proxy https_proxy all_proxy HTTP_PROXY HTTPS_PROXY ALL_PROXY

readonly PAGE=$TESTS/../docs/many-machines.md MACHINES=(meta1 node1 node2) NAMES=$SCRATCH/names PIDS=$SCRATCH/pids

# ---- machines ------------------------------------------------------------------------------------------------------

# Namespaces of mounts and host names, too; see net.bash.
hold_machine() {
  unshare --net --mount --uts --propagation private bash -c 'exec -a "$0" sleep infinity' "$SCRATCH/machine-$1" </dev/null >/dev/null 2>&1 &
  MACHINE[$1]=$!
  is_apart() { [ "$(readlink "/proc/${MACHINE[$1]}/ns/uts")" != "$(readlink /proc/self/ns/uts)" ]; }
  wait_for 20 "a namespace" is_apart "$1"
  on "$1" ip link set lo up
}
enter() { echo "nsenter --net=/proc/${MACHINE[$1]}/ns/net --mount=/proc/${MACHINE[$1]}/ns/mnt --uts=/proc/${MACHINE[$1]}/ns/uts"; }
# shellcheck disable=SC2046
on() { $(enter "$1") "${@:2}"; }

# furnish NAME: what a machine has for itself, and the programs that it finds first.
furnish() {
  local root=$SCRATCH/$1 each
  mkdir -p "$root"/{run,srv,mnt,root,usr-local/bin}
  cp -a /etc "$root/etc"
  cp "$NAMES" "$root/etc/hosts"
  rm -rf "$root/etc/forebay"
  cp "$SCRATCH"/stand-ins/* "$root/usr-local/bin/"
  touch "$root/usr-local/bin/forebay"
  on "$1" mount --bind "$FOREBAY" "$root/usr-local/bin/forebay"
  for each in etc run srv mnt; do on "$1" mount --bind "$root/$each" "/$each"; done
  on "$1" mount --rbind "$root/usr-local" /usr/local
  on "$1" hostname "$1"
}

stand_ins() {
  mkdir "$SCRATCH/stand-ins"
  local name
  for name in "${MACHINES[@]}"; do echo "$(address_of "$name") $name.example.org $name"; done >"$NAMES"
  echo "127.0.0.1 localhost" >>"$NAMES"
  for name in "${MACHINES[@]}"; do echo "$name.example.org $(enter "$name")"; done >"$SCRATCH/enter"
  # It says that packages are there, which tools/setup has seen to.
  cat >"$SCRATCH/stand-ins/apt-get" <<'END'
#!/usr/bin/env bash
set -euo pipefail
[ "$1 $2" = "install -y" ]
for package in "${@:3}"; do [ "$(dpkg-query -W -f '${db:Status-Status}' "$package")" = installed ]; done
END
  cat >"$SCRATCH/stand-ins/ssh" <<END
#!/usr/bin/env bash
set -euo pipefail
enter=\$(awk -v host="\${1#root@}" '\$1 == host { sub(/^[^ ]* /, ""); print; found = 1 } END { exit !found }' "$SCRATCH/enter")
exec \$enter bash -c "\${*:2}"
END
  cat >"$SCRATCH/stand-ins/scp" <<'END'
#!/usr/bin/env bash
set -euo pipefail
to=${!#} host=${to%%:*} path=${to#*:}
for file in "${@:1:$#-1}"; do
  target=$path
  [[ $path != */ ]] || target=$path$(basename "$file")
  mode=$(stat -c %a "$file")
  ssh "$host" "cat >$target && chmod $mode $target" <"$file"
done
END
  # Starts a unit as systemd would: verified by it, with the environment of its files, and the words of ExecStart with their variables. It runs until it is ended, and its log is a file.
  cat >"$SCRATCH/stand-ins/systemctl" <<END
#!/usr/bin/env bash
set -euo pipefail
[ "\$*" != daemon-reload ] || exit 0
[ "\$1 \$2" = "enable --now" ] || { echo "systemctl: \$* is not known here" >&2; exit 1; }
unit=/etc/systemd/system/\$3.service
said=\$(systemd-analyze verify "\$unit" 2>&1 | grep -F "\$3.service" || true)
[ -z "\$said" ] || { echo "\$said" >&2; exit 1; }
joined=\$(sed -e ':a' -e '/\\\\\$/N; s/\\\\\\n//; ta' "\$unit")
while read -r file; do set -a; . "\$file"; set +a; done < <(sed -n 's/^EnvironmentFile=//p' <<<"\$joined")
line=\$(sed -n 's/^ExecStart=//p' <<<"\$joined")
eval "words=(\$line)"
cd /
# Named by the case's directory, so that tools/test ends it in any case.
(exec -a "$SCRATCH/\$(hostname)/forebay" "\${words[@]}") </dev/null >>"$SCRATCH/\$(hostname)-\$3.log" 2>&1 &
echo \$! >>"$PIDS"
END
  chmod 755 "$SCRATCH"/stand-ins/*
}

# ---- the page ------------------------------------------------------------------------------------------------------

# blocks: writes each block that is to be run into a file of its own, NNN.MACHINE, in order.
blocks() {
  python3 - "$PAGE" "$SCRATCH/blocks" <<'PYTHON'
import os, re, sys
page, into = open(sys.argv[1]).read(), sys.argv[2]
os.mkdir(into)
marked = re.findall(r"^<!-- on: (.*?) -->\n```sh\n(.*?)^```$", page, re.M | re.S)
if len(marked) != page.count("<!-- on:"):
    sys.exit("a comment that names machines has no block below it")
for number, (machines, block) in enumerate(marked):
    for machine in machines.split():
        open(f"{into}/{number:03}.{machine}", "w").write(block)
PYTHON
}

# here BLOCK: with this run's bucket in it, where it names one, which is without TLS.
here() {
  sed -e "s,^STORE=.*,STORE='--store s3://bucket/scratch --endpoint $AWS_ENDPOINT_URL --region $AWS_REGION'," \
    -e "s,^AWS_ACCESS_KEY_ID=AKIAEXAMPLE$,AWS_ACCESS_KEY_ID=$AWS_ACCESS_KEY_ID," -e "s,^AWS_SECRET_ACCESS_KEY=example$,AWS_SECRET_ACCESS_KEY=$AWS_SECRET_ACCESS_KEY," \
    -e 's,^AWS_SECRET_ACCESS_KEY=\$.*,&\nAWS_ALLOW_HTTP=true,' "$1"
}

# run_block FILE: in the shell of its machine, which goes on from block to block with its variables.
run_block() {
  local machine=${1##*.} said=$1.said
  {
    echo 'set -euo pipefail; [ ! -e ~/.shell ] || . ~/.shell; set -a'
    here "$1"
    echo; echo 'export -p >~/.shell'
  } >"$1.run"
  on "$machine" env -i HOME="$SCRATCH/$machine/root" PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C \
    timeout 60 bash "$1.run" </dev/null >"$said" 2>&1 || { echo "on $machine:" >&2; cat "$1" "$said" >&2; fail "a block of the page"; }
}

# shown COMMAND...: what the page's last block with this line printed.
shown() {
  local file
  file=$(grep -lxF -- "$*" "$SCRATCH"/blocks/???.*[0-9] | tail -n 1)
  [ -n "$file" ] || fail "the page has no block with: $*"
  cat "$file.said"
}

# like COMMAND: each line that the page shows below that command has one that was printed and begins with the same word.
like() {
  python3 - "$PAGE" "$1" <(shown "$1") <<'PYTHON'
import re, sys
page, command, printed = open(sys.argv[1]).read(), sys.argv[2], open(sys.argv[3]).read()
below = page.rpartition(command + "\n```\n")[2].lstrip("\n")
shown = re.match(r"(?:    .*\n|\n(?=    ))+", below)
if not shown:
    sys.exit(f"the page shows nothing below {command}")
first = lambda text: {line.split()[0] for line in text.splitlines() if line.strip()}
if not first(shown[0]) <= first(printed):
    sys.exit(f"the page shows for {command}:\n{shown[0]}\nand this is printed:\n{printed}")
PYTHON
}

end() {
  local status=$? pid name
  [ "$status" -eq 0 ] || tail -n 12 "$SCRATCH"/*-forebay-*.log >&2 || true
  for name in node1 node2; do on "$name" timeout 20 /usr/local/bin/forebay umount --no-drain /mnt/scratch >/dev/null 2>&1 || true; done
  # Proxies, which leave their group, before the server that they tell of it.
  [ ! -e "$PIDS" ] || for pid in $(tac "$PIDS"); do
    kill "$pid" 2>/dev/null || continue
    timeout 15 tail --pid="$pid" -f /dev/null || kill -KILL "$pid" 2>/dev/null || true
  done
  [ -z "${S3_SERVER_PID:-}" ] || "$TESTS/../tools/s3-server" stop "$S3_SERVER_PID" || true
  kill "${MACHINE[@]}" 2>/dev/null || true
}
trap end EXIT

make_switch
for name in "${MACHINES[@]}" s3; do make_machine "$name"; done
stand_ins
for name in "${MACHINES[@]}"; do furnish "$name"; done
make_bucket "$SCRATCH/s3" bucket
eval "$(S3_SERVER_HOST=$(address_of s3) on s3 "$TESTS/../tools/s3-server" start "$SCRATCH/s3" 7070)"
blocks

read_on_node2() { on node2 cat /mnt/scratch/hello; }
members() { on meta1 /usr/local/bin/forebay group show fast --meta unix:/run/forebay.sock --json | python3 -c 'import json, sys; sys.exit(len(json.load(sys.stdin)["members"]) != 2)'; }
follows() { on "$1" /usr/local/bin/forebay status /mnt/scratch --json | grep -q '"group": "fast"'; }

for block in "$SCRATCH"/blocks/???.*; do
  # What the page says of after a while is waited for where it is looked at.
  if grep -q '^forebay status' "$block"; then
    wait_for 60 "two members" members
    for name in node1 node2; do wait_for 60 "the mount on $name to hear of the group" follows "$name"; done
  fi
  run_block "$block"
done

[ "$(shown 'cat /mnt/scratch/hello')" = "written on node1" ] || fail "node2 reads something else"
# Synced through the proxies, and read by the other machine.
on node2 dd if=/dev/urandom of=/mnt/scratch/data bs=1M count=8 conv=fsync status=none
[ "$(on node1 sha256sum /mnt/scratch/data)" = "$(on node2 sha256sum /mnt/scratch/data)" ] || fail "node1 reads other data than node2 wrote"
[[ $(shown 'forebay policy show /mnt/scratch/results') == *object* ]] || fail "the policy is not shown"
like 'forebay status --meta $FOREBAY_META'
like "forebay group show fast"
like "forebay status /mnt/scratch"

# The line of fstab does as well; who mounts has the store's credentials here, as a machine would have an identity.
on node2 /usr/local/bin/forebay umount /mnt/scratch >"$SCRATCH/umount.log" 2>&1 || { cat "$SCRATCH/umount.log" >&2; fail "umount on node2"; }
sed -n 's/^    \(forebay:.* fuse.forebay .*\)/\1/p' "$PAGE" >"$SCRATCH/node2/etc/fstab"
[ "$(wc -l <"$SCRATCH/node2/etc/fstab")" = 1 ] || fail "the page has no line of fstab, or several"
on node2 mount /mnt/scratch >"$SCRATCH/mount.log" 2>&1 || { cat "$SCRATCH/mount.log" >&2; fail "mount by the line of fstab"; }
[ "$(on node2 sha256sum /mnt/scratch/data)" = "$(on node1 sha256sum /mnt/scratch/data)" ] || fail "node2 reads other data than it wrote"
for name in node1 node2; do on "$name" /usr/local/bin/forebay umount /mnt/scratch >"$SCRATCH/umount.log" 2>&1 || { cat "$SCRATCH/umount.log" >&2; fail "umount on $name"; }; done
