#!/usr/bin/env bash
# The file system beside littlefs on the same device; installs libclang, which littlefs needs to be built. `peers.sh small` prints
# the table of docs/microcontrollers.md: the disk beside stores for microcontrollers on NOR flash. `peers.sh code` prints how
# large those in Rust are on a Cortex-M4.
set -euo pipefail
cd "$(dirname "$0")/../peers"
target=thumbv7em-none-eabihf

# Bytes of code and constants in the object of a static library that is all of it but for what the compiler brings along.
code_bytes() {
  local work bytes=0 size
  work=$(mktemp -d)
  (cd "$work" && ar x "$1")
  for size in $(readelf -SW "$work"/"$2"-*.o | sed -n 's/^ *\[ *[0-9]*\] \.\(text\|rodata\)[^ ]* *PROGBITS *[0-9a-f]* [0-9a-f]* \([0-9a-f]*\) .*/\2/p'); do
    bytes=$((bytes + 0x$size))
  done
  rm -rf "$work"
  echo "$bytes"
}

if [ "${1:-}" = code ]; then
  rustup target list --installed | grep -qx "$target" || rustup target add "$target"
  cargo build --quiet --release --manifest-path ../c/Cargo.toml -p margay-c --target "$target" --target-dir ../target/c
  echo "margay: $(code_bytes "$PWD/../target/c/$target/release/libmargay.a" margay) bytes of code and constants"
  for peer in sequential-storage ekv; do
    cargo build --quiet --release --manifest-path code/Cargo.toml --features "$peer" --target "$target" --target-dir ../target/peers-code
    echo "$peer: $(code_bytes "$PWD/../target/peers-code/$target/release/libcode.a" code) bytes of code and constants"
  done
  exit
fi
ls /usr/lib/llvm-*/lib/libclang* >/dev/null 2>&1 || (apt-get update -qq && apt-get install -y -qq libclang-dev) >/dev/null
export CARGO_TARGET_DIR="$PWD/../target/peers"
if [ "${1:-}" = small ]; then
  exec cargo run --release --quiet --bin small
fi
cargo build --release --quiet --bin margay-peers
"$CARGO_TARGET_DIR/release/margay-peers"
if command -v valgrind >/dev/null; then
  # Instructions of an overwrite with a sync, by the difference of two counts.
  instructions() {
    valgrind --tool=callgrind --callgrind-out-file=/dev/null "$CARGO_TARGET_DIR/release/margay-peers" "$1" "$2" 2>&1 |
      sed -n 's/.*Collected : \([0-9]*\).*/\1/p'
  }
  for peer in "margay 200 2200" "littlefs 2 12"; do
    set -- $peer
    few=$(instructions "$1" "$2") many=$(instructions "$1" "$3")
    echo "$1: $(((many - few) / ($3 - $2))) instructions for a 4 KiB overwrite with sync in a file of 40 %"
  done
fi
