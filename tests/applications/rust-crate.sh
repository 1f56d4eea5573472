#!/usr/bin/env bash
# A Rust crate of thirty modules is built and tested with its target folder on the volume.
. "$TESTS/prelude.sh"
cd "$DIR"
cargo new -q --lib --vcs none --name onvolume crate
cd crate
printf '\n[workspace]\n' >>Cargo.toml
for number in $(seq 30); do
  echo "pub mod m$number;" >>src/lib.rs
  printf 'pub fn value(x: u64) -> u64 { x.wrapping_mul(%d) + 1 }\n#[test]\nfn works() { assert_eq!(value(2), %d); }\n' "$number" $((2 * number + 1)) >"src/m$number.rs"
done
export CARGO_TARGET_DIR=$DIR/crate/target
cargo test -q --offline >"$SCRATCH/cargo.log" 2>&1 || { tail -n 30 "$SCRATCH/cargo.log"; fail "cargo test"; }
grep -q '31 passed' "$SCRATCH/cargo.log" || { cat "$SCRATCH/cargo.log"; fail "not all tests ran"; }
cargo build --offline >"$SCRATCH/cargo.log" 2>&1 || { cat "$SCRATCH/cargo.log"; fail "cargo build"; }
sleep 0.1 # A source's time must be after the last build's.
echo 'pub fn more() {}' >>src/m1.rs
cargo build --offline -v >"$SCRATCH/cargo.log" 2>&1
grep -q 'Compiling onvolume' "$SCRATCH/cargo.log" || fail "cargo does not see a changed file"
cargo build --offline -v >"$SCRATCH/cargo.log" 2>&1
grep -q 'Fresh onvolume' "$SCRATCH/cargo.log" || fail "cargo builds again without need"
