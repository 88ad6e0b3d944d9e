#!/usr/bin/env bash
# Everything `make test` runs; installs what it needs.
set -euo pipefail
cd "$(dirname "$0")/.."

# program:package of what the tests run beside margay itself.
needed="valgrind:valgrind nbdinfo:libnbd-bin nbdfuse:nbdfuse qemu-img:qemu-utils fio:fio mkfs.ext4:e2fsprogs
  debugfs:e2fsprogs fusermount3:fuse3 openssl:openssl sqlite3:sqlite3 git:git tar:tar"
missing=""
for pair in $needed; do
  command -v "${pair%%:*}" >/dev/null || missing="$missing ${pair##*:}"
done
[ -x /usr/bin/python3 ] && /usr/bin/python3 -c 'import nbd' 2>/dev/null || missing="$missing python3-libnbd"
if [ -n "$missing" ]; then
  # shellcheck disable=SC2086
  (apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq $missing) >/dev/null 2>&1 || {
    echo "SKIPPED: some tests need$missing, which could not be installed"
    [ -z "${CI:-}" ] || exit 1
  }
fi

# Test suites of POSIX file systems, built once.
export PATH="$PWD/target/tools/bin:$PATH"
for tool in pjdfstest@0.2.2 fsx@0.3.2; do
  command -v "${tool%%@*}" >/dev/null || cargo install --quiet --locked --root target/tools "$tool" || {
    echo "SKIPPED: tests with ${tool%%@*}, which could not be built"
    [ -z "${CI:-}" ] || exit 1
  }
done

cargo fmt --all --check
cargo clippy --workspace --all-targets --quiet -- -D warnings
RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --quiet
# What of the disk for microcontrollers is not on by default, because it needs more of the processor: its async face.
cargo clippy -p margay-micro --all-features --all-targets --quiet -- -D warnings
RUSTDOCFLAGS="-D warnings" cargo doc -p margay-micro --all-features --no-deps --quiet
# Every crate can be packed for the registry (crates/cli/tests/house.rs looks at the metadata).
cargo package --workspace --no-verify --allow-dirty --quiet
# Licences, versions and sources of the dependencies (deny.toml). Building cargo-deny takes minutes, so it is not installed here.
if command -v cargo-deny >/dev/null; then
  cargo deny --log-level error check licenses bans sources
else
  echo "SKIPPED: cargo deny check licenses bans sources (cargo install cargo-deny)"
fi
# The oldest compiler that Cargo.toml promises: a download of some seconds the first time.
oldest=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
if rustup run "$oldest" cargo --version >/dev/null 2>&1 ||
  rustup toolchain install "$oldest" --profile minimal --no-self-update >/dev/null 2>&1; then
  cargo "+$oldest" check --workspace --quiet --target-dir target/oldest
else
  echo "SKIPPED: the check with Rust $oldest, which could not be installed"
fi
# The crates without std, on a microcontroller that qemu emulates: some seconds beside the build.
scripts/bare-metal.sh
scripts/bare-metal.sh run
# The library for C, its header, example and tests.
scripts/c-library.sh
cargo test --workspace --quiet
cargo test -p margay-micro --all-features --quiet
# Raw flash under a kernel of its own, with power cuts: about two minutes.
scripts/guest.sh short target/debug/margay
# The package of Python.
scripts/python.sh
cargo build --release --quiet -p margay -p margay-trials -p margay-bench
target/release/margay-trials quick
if ! { : <>/dev/fuse; } 2>/dev/null; then
  echo "SKIPPED: the budget of a write to a mounted file, which needs /dev/fuse"
  [ -z "${CI:-}" ] || exit 1
fi
if command -v valgrind >/dev/null; then
  target/release/margay-bench instructions
fi
echo "make test: all passed"
