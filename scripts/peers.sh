#!/usr/bin/env bash
# The file system beside littlefs on the same device; installs libclang, which littlefs needs to be built.
set -euo pipefail
cd "$(dirname "$0")/../peers"
ls /usr/lib/llvm-*/lib/libclang* >/dev/null 2>&1 || (apt-get update -qq && apt-get install -y -qq libclang-dev) >/dev/null
cargo build --release --quiet
target/release/margay-peers
if command -v valgrind >/dev/null; then
  # Instructions of an overwrite with a sync, by the difference of two counts.
  instructions() {
    valgrind --tool=callgrind --callgrind-out-file=/dev/null target/release/margay-peers "$1" "$2" 2>&1 |
      sed -n 's/.*Collected : \([0-9]*\).*/\1/p'
  }
  for peer in "margay 200 2200" "littlefs 2 12"; do
    set -- $peer
    few=$(instructions "$1" "$2") many=$(instructions "$1" "$3")
    echo "$1: $(((many - few) / ($3 - $2))) instructions for a 4 KiB overwrite with sync in a file of 40 %"
  done
fi
