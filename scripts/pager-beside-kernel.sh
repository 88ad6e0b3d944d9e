#!/bin/sh
# The same working set paged by margay and by the kernel from a file mapping, in as much RAM, on the same disk.
# The kernel's is limited by a memory cgroup (root). Usage: pager-beside-kernel.sh [MIB [RAM_MIB [ACCESSES]]]
set -eu
mib=${1:-32} ram=${2:-8} accesses=${3:-50000}
cd "$(dirname "$0")/.."
cargo build -q --release -p margay -p margay-preload
cargo build -q --release -p margay-pager --example touch
touch=target/release/examples/touch
folder=$(mktemp -d out-pager.XXXXXX)
group=
trap 'rm -rf "$folder"; [ -z "$group" ] || rmdir "$group" 2>/dev/null || true' EXIT
for scheme in du-gc da-gc lda-gc5; do
    echo "== margay, $scheme, $mib MiB in $ram MiB of RAM"
    timeout 300 target/release/margay vm run --ram "${ram}M" --memory "$((mib + 8))M" -s "$scheme" --store "$folder/swap.img" -- \
        "$touch" heap "$mib" "$accesses" 2>&1
done
# What the program needs beside its memory.
limit=$(((ram + 4) << 20))
if [ -d /sys/fs/cgroup/memory ] && mkdir "/sys/fs/cgroup/memory/margay-$$" 2>/dev/null; then
    group=/sys/fs/cgroup/memory/margay-$$
    echo "$limit" > "$group/memory.limit_in_bytes"
elif grep -qw memory /sys/fs/cgroup/cgroup.controllers 2>/dev/null && mkdir "/sys/fs/cgroup/margay-$$" 2>/dev/null; then
    group=/sys/fs/cgroup/margay-$$
    echo "$limit" > "$group/memory.max"
else
    echo "SKIPPED: no memory cgroup can be made here, so the kernel cannot be given as little RAM"
    exit 0
fi
for place in mapped random:mapped; do
    echo "== the kernel, file mapping ($place), $mib MiB in $((ram + 4)) MiB of RAM"
    path="$folder/mapped"
    [ "$place" = mapped ] || path="random:$path"
    sh -c "echo \$\$ > '$group/cgroup.procs' && exec timeout 300 '$touch' '$path' '$mib' '$accesses'"
done
