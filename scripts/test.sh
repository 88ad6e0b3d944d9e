#!/usr/bin/env bash
# Everything `make test` runs; installs what it needs.
set -euo pipefail
cd "$(dirname "$0")/.."

if ! command -v valgrind >/dev/null; then
  (apt-get update -qq && apt-get install -y -qq valgrind) >/dev/null 2>&1 || {
    echo "SKIPPED: the instruction budgets need valgrind, and it could not be installed"
    [ -z "${CI:-}" ] || exit 1
  }
fi

cargo fmt --all --check
cargo clippy --workspace --all-targets --quiet -- -D warnings
cargo test --workspace --quiet
if command -v valgrind >/dev/null; then
  cargo build --release --quiet -p margay-bench
  target/release/margay-bench instructions
fi
echo "make test: all passed"
