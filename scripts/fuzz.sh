#!/usr/bin/env bash
# Fuzzes every target for so many seconds: scripts/fuzz.sh 60
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-60}
if ! cargo fuzz --version >/dev/null 2>&1; then
  cargo install cargo-fuzz --locked --quiet || { echo "SKIPPED: cargo-fuzz could not be installed"; exit 0; }
fi
for folder in crates/*/fuzz; do
  for target in $(cd "$folder/.." && cargo fuzz list); do
    # libFuzzer's own flags work with a stable compiler when it is allowed to take unstable ones.
    (cd "$folder/.." && RUSTC_BOOTSTRAP=1 cargo fuzz run --sanitizer none "$target" -- -max_total_time="$seconds" -max_len=65536)
  done
done
