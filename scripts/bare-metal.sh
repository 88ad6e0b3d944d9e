#!/usr/bin/env bash
# The crates without std, on a microcontroller: builds the programs of bare/, and runs them on the host.
# `bare-metal.sh run`, after that, runs them on the microcontroller that qemu emulates; `bare-metal.sh table` does the same
# and prints the table of bare/README.md.
set -euo pipefail
cd "$(dirname "$0")/../bare"
target=thumbv7em-none-eabihf
crates="flash policy format log ftl micro fs hybrid vm"
programs="disk files tasks"
export CARGO_TARGET_DIR="$PWD/../target/bare"
built="$CARGO_TARGET_DIR/$target/release"

has_target=yes
{ rustup target list --installed | grep -qx "$target" || rustup target add "$target"; } >/dev/null 2>&1 || has_target=""

build() {
  cargo fmt --check
  cargo clippy --quiet -- -D warnings
  if [ -n "$has_target" ]; then
    # The programs compile every crate but for the way to switch std off in this workspace.
    # shellcheck disable=SC2046
    (cd .. && cargo check --quiet --target "$target" --no-default-features $(printf -- '-p margay-%s ' $crates))
    cargo build --quiet --release --target "$target"
  else
    echo "SKIPPED: the build for $target, which rustup could not install. On the host the same crates are linked without std:"
  fi
  # A std anywhere below would be refused here: the programs have a panic handler of their own, and there can be one.
  cargo build --quiet
  for program in $programs; do
    "$CARGO_TARGET_DIR/debug/$program" >"$CARGO_TARGET_DIR/$program.txt" || { cat "$CARGO_TARGET_DIR/$program.txt"; exit 1; }
  done
  echo "bare metal: $programs ran without std on the host${has_target:+, and are built for $target}"
}

emulate() {
  command -v qemu-system-arm >/dev/null ||
    (apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends qemu-system-arm) >/dev/null 2>&1 ||
    true
  if [ -z "$has_target" ] || ! command -v qemu-system-arm >/dev/null; then
    echo "SKIPPED: the programs under qemu: qemu-system-arm or the target $target could not be installed"
    [ -z "${CI:-}" ] || exit 1
    exit 0
  fi
  for program in $programs; do
    timeout 600 cargo run --quiet --release --target "$target" --bin "$program" </dev/null
  done
}

# KiB of a program that stand in the flash of the microcontroller itself: vectors, code, constants, initial values.
code_kib() {
  readelf -SW "$1" | sed 's/^ *\[ *[0-9]*\] *//' | awk '$1 ~ /^\.(vector_table|text|rodata|data)$/ { print "0x" $5 }' |
    { total=0; while read -r bytes; do total=$((total + bytes)); done; echo $((total / 1024)); }
}

table() {
  echo "| program | chip | in use | stop | mount from a checkpoint | mount after a power cut |"
  echo "|---|---|---|---|---|---|"
  emulate
  for program in $programs; do echo "$program: $(code_kib "$built/$program") KiB of code and constants"; done
}

case "${1:-}" in
  "") build ;;
  run) emulate ;;
  table) table ;;
  *) echo "usage: $0 [run | table]" >&2; exit 2 ;;
esac
