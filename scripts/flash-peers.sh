#!/usr/bin/env bash
# margay beside UBIFS, JFFS2 and f2fs on the same simulated chips under the same workload: the tables of docs/mtd-peers.md.
#
#   scripts/flash-peers.sh [table|smoke] [PATH/TO/margay] [ROUNDS]
#
# `table` takes 6 to 20 minutes a round on two cores that have other work too, and writes out/flash-peers.csv, out/flash-peers.md and the tables
# in docs/mtd-peers.md. What has run with the same margay is not run again after an interruption. `smoke` (in make test-long) checks
# the counters against known numbers of programs and erases, and runs one file system with a small workload.
set -euo pipefail
cd "$(dirname "$0")/.."
mode=${1:-table}
margay=${2:-target/release/margay}
rounds=${3:-3}
case $mode in
table | smoke) ;;
*) echo "$0: $mode is neither table nor smoke" >&2 && exit 2 ;;
esac
. scripts/guest-boot.sh
# A guest may have to wait for others.
limit=1800

# Bytes that are written after the files are there, and after how many operations all is synced.
writes=48000000
sync_every=8
# A chip, its MiB, a file system, what is in its files, and how many bytes of files: 60 % of what the smallest of the file
# systems on the chip holds. f2fs needs a disk of 50 MiB, so it has larger chips, and margay's file system beside it.
runs="nand-2k 32 ubifs random 13500000
nand-2k 32 jffs2 random 13500000
nand-2k 32 margay-files random 13500000
nand-2k 32 margay-ext4 random 13500000
nand-4k 32 ubifs random 13500000
nand-4k 32 jffs2 random 13500000
nand-4k 32 margay-files random 13500000
nand-4k 32 margay-ext4 random 13500000
nor 32 ubifs random 13500000
nor 32 jffs2 random 13500000
nor 32 margay-files random 13500000
nand-2k 32 ubifs half 13500000
nand-2k 32 jffs2 half 13500000
nand-4k 64 ubifs random 5500000
nand-4k 64 f2fs random 5500000
nand-4k 64 margay-files random 5500000
nand-4k 64 margay-f2fs random 5500000"
if [ "$mode" = smoke ]; then
  writes=1000000
  rounds=1
  runs="nand-2k 16 calibrate random 0
nor 16 margay-files random 1000000"
fi

cargo build --quiet -p margay-workload --example work_on_files
set_up_guest peers nbd-client:nbd-client mkfs.ext4:e2fsprogs fusermount3:fuse3 mkfs.f2fs:f2fs-tools nandwrite:mtd-utils -- \
  target/debug/examples/work_on_files nbd-client mkfs.ext4 fusermount3 mkfs.f2fs \
  flash_erase nandwrite nanddump ubiformat ubiattach ubidetach ubimkvol -- \
  ubifs jffs2 f2fs mtdblock lzo lzo-rle zstd deflate

# Results by what they are results of, so that none is taken for that of another margay, kernel or script.
inputs=$(cat "$margay" scripts/guest/{init,common,peers}.sh target/debug/examples/work_on_files | sha256sum | cut -c1-12)
results=out/flash-peers/$version-$inputs
mkdir -p "$results"

# One run in a guest of its own: run CHIP MIB PEER CONTENT DATA SEED ROW
run() {
  give_memory
  boot "${7%.row}.log" slab_nomerge log_buf_len=4M guest=peers chip="$1" mib="$2" peer="$3" content="$4" data="$5" seed="$6" \
    writes=$writes sync_every=$sync_every
  wait_for 1 '^guest: all done'
  cut_power
  if grep -aq '^FAILED' "$log" || ! grep -aq '^guest: all done' "$log"; then
    echo "FAILED, or took over $limit s: $3 on $1; the end of $log:" >&2
    tail -20 "$log" >&2
  else
    grep -a '^row: ' "$log" | tr -d '\r' >"$7"
    [ "$mode" = smoke ] || echo "$3 on $1, round $6: done after $((SECONDS - started)) s"
  fi
}

# Two guests at a time. A round has its own seed; the first is complete before the second.
started=$SECONDS
rows=()
for ((round = 1; round <= rounds; round++)); do
  while read -r chip mib peer content data; do
    row=$results/$chip-$mib-$peer-$content-$round.row
    rows+=("$row")
    [ "$mode" = table ] && [ -s "$row" ] && continue
    rm -f "$row"
    while [ "$(jobs -rp | wc -l)" -ge 2 ]; do wait -n || true; done
    run "$chip" "$mib" "$peer" "$content" "$data" "$round" "$row" &
  done <<<"$runs"
done
wait
for row in "${rows[@]}"; do [ -s "$row" ] || exit 1; done

if [ "$mode" = smoke ]; then
  python3 scripts/flash-peers.py check "${rows[@]}"
  echo "flash peers: all passed in $((SECONDS - started)) s"
else
  versions="margay $("$margay" --version | cut -d' ' -f2), Linux $version, mtd-utils $(nandwrite --version | sed -n 's/^nandwrite (mtd-utils) //p'), f2fs-tools $(mkfs.f2fs -V 2>&1 | sed -n 's/^mkfs.f2fs \([^ ]*\).*/\1/p'), e2fsprogs $(mkfs.ext4 -V 2>&1 | sed -n 's/^mke2fs \([^ ]*\).*/\1/p')"
  python3 scripts/flash-peers.py table "$versions; rounds: $rounds; $((writes / 1000000)) MB written, synced after every $sync_every operations" "${rows[@]}"
fi
