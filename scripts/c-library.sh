#!/usr/bin/env bash
# The library for C (c/): builds it, compares the header with what cbindgen makes of the sources, and runs the example and the
# tests, with the address sanitizer too; builds it for a Cortex-M4. `c-library.sh header` writes the header anew, `c-library.sh
# table` prints the memory of some chips as the tests measured it.
set -euo pipefail
cd "$(dirname "$0")/../c"
target=thumbv7em-none-eabihf
export CARGO_TARGET_DIR="$PWD/../target/c"
built="$CARGO_TARGET_DIR/release"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

header() { cargo run --quiet -p margay-c-header; }

# compile PROGRAM FLAGS...: warnings are errors.
compile() {
  local program=$1
  shift
  cc -std=c11 -O1 -g -Wall -Wextra -Werror "$@" -Iinclude "$program.c" "$built/libmargay.a" -o "$work/program"
}

case "${1:-}" in
  header)
    header >"$work/margay.h"
    cp "$work/margay.h" include/margay.h
    exit
    ;;
  "" | table) ;;
  *) echo "usage: $0 [header | table]" >&2; exit 2 ;;
esac

cargo build --quiet --release -p margay-c
if [ "${1:-}" = table ]; then
  compile tests/disks
  "$work/program"
  exit
fi

cargo fmt -p margay-c -p margay-c-header --check
cargo clippy --quiet --release --all -- -D warnings
header >"$work/margay.h"
diff -u include/margay.h "$work/margay.h" || {
  echo "c/include/margay.h is not what cbindgen makes of c/src: run scripts/c-library.sh header" >&2
  exit 1
}
for program in examples/disk tests/disks; do
  compile "$program"
  "$work/program" >"$work/out" || { cat "$work/out"; exit 1; }
done
if echo 'int main(void) { return 0; }' | cc -x c -fsanitize=address,undefined - -o "$work/sane" 2>/dev/null && "$work/sane"; then
  sane=", with the address sanitizer too"
  for program in examples/disk tests/disks; do
    compile "$program" -fsanitize=address,undefined -fno-sanitize-recover
    "$work/program" >"$work/out" || { cat "$work/out"; exit 1; }
  done
else
  sane=""
  echo "SKIPPED: the programs in C under the address sanitizer, which the compiler does not have"
  [ -z "${CI:-}" ] || exit 1
fi
# A C++ program can use it, too.
if command -v c++ >/dev/null; then
  echo '#include "margay.h"' | c++ -x c++ -fsyntax-only -Wall -Wextra -Werror -Iinclude -
fi
if { rustup target list --installed | grep -qx "$target" || rustup target add "$target"; } >/dev/null 2>&1; then
  cargo build --quiet --release -p margay-c --target "$target"
  thumb=", and the library is built for $target"
else
  thumb=""
  echo "SKIPPED: the library for $target, which rustup could not install"
fi
echo "library for C: the header is up to date, the example and the tests ran$sane$thumb"
