#!/usr/bin/env bash
# What is wrong is refused with one line that says what to do, changes nothing and hangs nobody; where the cause goes away, it goes on by itself.
. "$TESTS/prelude.sh"
. "$TESTS/cluster/cluster.bash"
. "$TESTS/cluster/postgres.bash"
unset http_proxy https_proxy all_proxy HTTP_PROXY HTTPS_PROXY ALL_PROXY
PKI=$SCRATCH/pki OTHER=$SCRATCH/other POINT=$SCRATCH/mnt AT=unix:$SCRATCH/socket
TLS=(--tls-ca "$PKI/ca.pem" --tls-cert "$PKI/node.pem" --tls-key "$PKI/node.key")

# meta [WORD...]: the server of this case, with words before the program.
meta() {
  "$@" "$FOREBAY" meta --engine "$ENGINE" --listen "127.0.0.1:$PORT" --listen "$AT" --tls-ca "$PKI/ca.pem" --tls-cert "$PKI/meta.pem" \
    --tls-key "$PKI/meta.key" </dev/null >>"$SCRATCH/meta-a.log" 2>&1 &
  META_PID[a]=$!
  wait_for 60 "the server" ask volume list
}
end_meta() { kill -TERM "${META_PID[a]}" && wait "${META_PID[a]}" || fail "the server did not end in order"; }
ask() { "$FOREBAY" "$@" --meta "$AT"; }
mounts() { mkdir -p "$POINT"; "$FOREBAY" mount "forebay://127.0.0.1:$PORT/$1" "$POINT" "${@:2}" </dev/null; }
# no_mount VOLUME OPTION...: the mount is refused, and nothing is mounted.
no_mount() {
  mkdir -p "$POINT"
  refused "" "$FOREBAY" mount "forebay://127.0.0.1:$PORT/$1" "$POINT" "${@:2}"
  ! mountpoint -q "$POINT" || fail "it was refused, and something is mounted"
}

PORT=$(free_port)
"$FOREBAY" pki init "$PKI" >/dev/null
"$FOREBAY" pki init "$OTHER" >/dev/null
"$FOREBAY" pki issue "$PKI" meta --server --ip 127.0.0.1 >/dev/null
"$FOREBAY" pki issue "$PKI" db --server --ip 127.0.0.1 >/dev/null
"$FOREBAY" pki issue "$PKI" node --client >/dev/null
"$FOREBAY" pki issue "$OTHER" node --client >/dev/null
faketime -f '-400d' "$FOREBAY" pki issue "$PKI" expired --client >/dev/null
faketime -f '-400d' "$FOREBAY" pki issue "$PKI" late --server --ip 127.0.0.1 >/dev/null
chmod 755 "$PKI"
mkdir "$SCRATCH/pg"
cp "$PKI/db.pem" "$SCRATCH/pg/server.pem"
cp "$PKI/db.key" "$SCRATCH/pg/server.key"
make_postgres 127.0.0.1 "$(free_port)" 127.0.0.1/32
ENGINE="postgres://forebay:$PG_PASSWORD@127.0.0.1:$PG_PORT/forebay?sslmode=verify-full&sslrootcert=$PKI/ca.pem"
SERVER=("$FOREBAY" meta --listen "unix:$SCRATCH/second" --insecure --engine)

# The engine is not there yet, knows nobody, or is wrong.
refused "" "${SERVER[@]}" "$ENGINE"
says "cannot be reached" "127.0.0.1:$PG_PORT"
start_postgres
refused "" "${SERVER[@]}" "$ENGINE"
says "createdb|does not exist"
psql_on postgres "CREATE DATABASE forebay"
refused "" "${SERVER[@]}" "${ENGINE/$PG_PASSWORD/wrong}"
says "look at the user and the password"
refused "" "${SERVER[@]}" "dir:relative"
says "absolute"
refused "" "$FOREBAY" meta --engine "$ENGINE" --listen "127.0.0.1:$PORT"
says "--tls-ca" "--insecure"

export AWS_ACCESS_KEY_ID= AWS_SECRET_ACCESS_KEY=
start_s3 "$SCRATCH/s3"
make_bucket "$SCRATCH/s3" bucket
meta
ask volume create shared --store s3://bucket/shared --endpoint "$AWS_ENDPOINT_URL" --region "$AWS_REGION" >/dev/null
mkdir "$SCRATCH/store"
ask volume create second --store "file://$SCRATCH/store" >/dev/null
for name in shared second; do ask token create "$name" >"$SCRATCH/$name.token" 2>/dev/null; done
ask token create shared >"$SCRATCH/revoked.token" 2>"$SCRATCH/revoked"
GOOD=(--token "$SCRATCH/shared.token" "${TLS[@]}")

# Two servers at one address.
refused "" "${SERVER[@]}" "$ENGINE" --advertise "127.0.0.1:$PORT"
says "another metadata server" "--advertise"
refused "" "$FOREBAY" meta --engine "$ENGINE" --listen "$AT" --insecure
says "cannot listen at" "in use"

# Tokens.
echo garbage >"$SCRATCH/garbage"
sed 's/.$/x/' "$SCRATCH/shared.token" >"$SCRATCH/wrong"
for token in garbage wrong second.token; do
  no_mount shared --token "$SCRATCH/$token" "${TLS[@]}"
  says "token" "'shared'"
done
grep -qE "127.0.0.1:[0-9]+: a request is refused: .*token" "$SCRATCH/meta-a.log" || fail "the server's log does not say that a token was wrong"
no_mount shared --token "$SCRATCH/missing" "${TLS[@]}"
says "cannot read the token" "missing"
no_mount shared "${TLS[@]}"
says "a token is needed"
no_mount nowhere "${GOOD[@]}"
says "'nowhere'"
refused "" "$FOREBAY" volume show nowhere --meta "$AT"
says "no volume 'nowhere'" "volume list"

# Certificates.
no_mount shared --token "$SCRATCH/shared.token" --tls-ca "$PKI/ca.pem" --tls-cert "$PKI/expired.pem" --tls-key "$PKI/expired.key"
says "expired" "forebay pki issue"
no_mount shared --token "$SCRATCH/shared.token" --tls-ca "$PKI/ca.pem" --tls-cert "$OTHER/node.pem" --tls-key "$OTHER/node.key"
says "does not accept our certificate|not know the authority"
no_mount shared --token "$SCRATCH/shared.token" --tls-ca "$OTHER/ca.pem" --tls-cert "$PKI/node.pem" --tls-key "$PKI/node.key"
says "from another authority"
no_mount shared --token "$SCRATCH/shared.token" --insecure
says "TLS|protocol"
no_mount shared --token "$SCRATCH/shared.token"
says "--tls-ca" "--insecure"
LATE=("$FOREBAY" meta --engine "dir:$SCRATCH/late" --listen "127.0.0.1:$(free_port)" --tls-ca "$PKI/ca.pem" --tls-cert "$PKI/late.pem" --tls-key "$PKI/late.key")
refused "" "${LATE[@]}"
says "late" "expired" "forebay pki issue"
# It was good when that server was started.
faketime -f '-400d' "${LATE[@]}" </dev/null >"$SCRATCH/late.log" 2>&1 &
EXPIRED=$!
wait_for 60 "a server in another year" grep -q "listening at" "$SCRATCH/late.log"
refused "" "$FOREBAY" mount "forebay://${LATE[5]}/shared" "$POINT" "${GOOD[@]}"
says "certificate has expired" "${LATE[5]}"
kill "$(pgrep -P "$EXPIRED" || echo "$EXPIRED")"
wait "$EXPIRED" || true
refused "" "$FOREBAY" volume list --meta "127.0.0.1:$PORT" --tls-ca "$PKI/ca.pem" --tls-cert "$OTHER/node.pem" --tls-key "$OTHER/node.key"
says "certificate"
refused "" "$FOREBAY" status --meta "127.0.0.1:$(free_port)" "${TLS[@]}"
says "no metadata server answers" "is .forebay meta. running there"

# Another release, and bytes that are no release's.
python3 "$TESTS/cluster/frames.py" --serve "$SCRATCH/release" &
OLD=$!
wait_for 20 "a server of another release" test -S "$SCRATCH/release"
refused "" "$FOREBAY" volume list --meta "unix:$SCRATCH/release"
says "no common version" "7 to 9"
refused "" "$FOREBAY" mount "forebay://unix:$SCRATCH/release/shared" "$POINT" --insecure
says "no common version" "7 to 9"
kill "$OLD"
timeout 120 python3 "$TESTS/cluster/frames.py" "$SCRATCH/socket" || fail "a frame did what it should not"
ask volume list >/dev/null
for code in malformed unsupported; do
  grep -q "a request is refused: $code" "$SCRATCH/meta-a.log" || fail "the server's log does not say that a request was $code"
done

# Who is set up wrongly comes again and again: a line at once, then one a minute that says how often; also when the server ends.
python3 - "$PORT" <<'PYTHON'
import socket, sys
for _ in range(200):
    with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as connection:
        connection.sendall(b"GET / HTTP/1.0\r\n\r\n")
        while connection.recv(1000):
            pass
PYTHON
# One line; another one where more than a minute lies between.
cut_off=$(grep -cE '127.0.0.1:[0-9]+: the connection is cut off: the peer does not speak TLS' "$SCRATCH/meta-a.log" || true)
[ "$cut_off" -ge 1 ] && [ "$cut_off" -le 3 ] || fail "the log has $cut_off lines of 200 connections without TLS"

# A token that is revoked under a mount: whoever uses that is told so, nobody hangs, and another token does.
mounts shared --token "$SCRATCH/revoked.token" "${TLS[@]}" >"$SCRATCH/mount.log" 2>&1 || { cat "$SCRATCH/mount.log" >&2; fail "mount"; }
echo kept >"$POINT/kept"
sync "$POINT/kept"
ask token revoke "$(grep -oE '[0-9a-f]{16}' "$SCRATCH/revoked" | sed -n 1p)" >/dev/null
is_refused() { ! timeout 60 touch "$POINT/late" && [ ! -e "$POINT/late" ]; }
wait_for 60 "a revoked token to count no more" is_refused
umount -l "$POINT"
wait_for 60 "a session less" sh -c "'$FOREBAY' meta status --json --meta '$AT' | grep -q '\"sessions\": 0'"
no_mount shared --token "$SCRATCH/revoked.token" "${TLS[@]}"
says "revoked"
mounts shared "${GOOD[@]}" >"$SCRATCH/mount.log" 2>&1 || { cat "$SCRATCH/mount.log" >&2; fail "mount"; }
[ "$(cat "$POINT/kept")" = kept ] || fail "what was synced is not there"

# The engine goes away, and comes back.
stop_postgres fast
timeout 60 sh -c "echo waits >'$POINT/waits' && sync '$POINT/waits'" &
WAITS=$!
sleep 3
kill -0 "$WAITS" || fail "it did not wait for the engine"
start_postgres
wait "$WAITS" || fail "what waited for the engine failed"
[ "$(cat "$POINT/waits")" = waits ]
umount_volume "$POINT"

# A clock that is an hour off: nothing here compares two machines' clocks; a store does, and says so.
mkdir -p "$POINT"
refused "" faketime -f '+1h' "$FOREBAY" create "$SCRATCH/one" --store s3://bucket/one --endpoint "$AWS_ENDPOINT_URL"
says "clock"
# A mount whose clock is wrong, and is set: what the store did not take is kept, and stored then.
FAKETIME=$(find /usr/lib -name libfaketimeMT.so.1 | head -n 1)
echo +1h >"$SCRATCH/clock"
(
  export LD_PRELOAD=$FAKETIME FAKETIME_TIMESTAMP_FILE=$SCRATCH/clock FAKETIME_NO_CACHE=1 FAKETIME_DONT_FAKE_MONOTONIC=1
  mounts shared "${GOOD[@]}" --log "$SCRATCH/clock.log" >"$SCRATCH/mount.log" 2>&1
) || { cat "$SCRATCH/mount.log" >&2; fail "mount"; }
head -c 100000 "$FOREBAY" >"$POINT/early"
! timeout 60 sync "$POINT/early" 2>"$SCRATCH/said" || fail "a store with another clock took it"
grep -q "Input/output error" "$SCRATCH/said" || { cat "$SCRATCH/said" >&2; fail "another error than that of a store"; }
[ "$(grep -c "clock" "$SCRATCH/clock.log")" -ge 1 ] || { cat "$SCRATCH/clock.log" >&2; fail "the log does not say that it is the clock"; }
echo +0 >"$SCRATCH/clock"
wait_for 60 "the store to take what was kept" sync "$POINT/early"
umount_volume "$POINT"
mounts shared "${GOOD[@]}" >"$SCRATCH/mount.log" 2>&1 || { cat "$SCRATCH/mount.log" >&2; fail "mount"; }
head -c 100000 "$FOREBAY" | cmp - "$POINT/early" || fail "it is not what was written"
umount_volume "$POINT"
end_meta
grep -qE '127.0.0.1, [0-9]{3} times more within a minute: .*does not speak TLS' "$SCRATCH/meta-a.log" || fail "the log does not say how often it was"
meta faketime -f '+1h'
mounts second --token "$SCRATCH/second.token" "${TLS[@]}" >"$SCRATCH/mount.log" 2>&1 || { cat "$SCRATCH/mount.log" >&2; fail "mount"; }
echo time >"$POINT/time"
sync "$POINT/time"
umount_volume "$POINT"
kill -TERM "$(pgrep -P "${META_PID[a]}" || echo "${META_PID[a]}")"
wait "${META_PID[a]}" || true

# An engine, and a registry, of a later release: as they were before, all is there.
psql_on forebay "UPDATE forebay.schema SET version = 99"
refused "" "${SERVER[@]}" "$ENGINE"
says "version 99" "use a later one"
psql_on forebay "UPDATE forebay.schema SET version = 1"
psql_on forebay "UPDATE forebay.rows_1 SET value = '\x63000000' WHERE key = '\x00'"
refused "" "${SERVER[@]}" "$ENGINE"
says "registry" "version 99" "use a later one"
psql_on forebay "UPDATE forebay.rows_1 SET value = '\x01000000' WHERE key = '\x00'"
meta
mounts second --token "$SCRATCH/second.token" "${TLS[@]}" >"$SCRATCH/mount.log" 2>&1 || { cat "$SCRATCH/mount.log" >&2; fail "mount"; }
[ "$(cat "$POINT/time")" = time ] || fail "what was synced is not there"
umount_volume "$POINT"
end_meta
stop_postgres fast
stop_s3
