#!/usr/bin/env bash
# margay on raw flash under a real kernel: a guest with simulated NAND and NOR, bad segments and bit errors, power cuts.
#
#   scripts/guest.sh [short|long|shell] [PATH/TO/margay]
#
# Boots Debian's kernel (downloaded and unpacked, not installed) in qemu without hardware virtualization. docs/mtd.md says what
# is tested. `long` does it with whole chips and more power cuts; `shell` gives a shell in the guest, with /dev/mtd0.
set -euo pipefail
cd "$(dirname "$0")/.."
mode=${1:-short}
margay=${2:-target/release/margay}
case $mode in
short | long | shell) ;;
*) echo "$0: $mode is neither short nor long nor shell" >&2 && exit 2 ;;
esac
. scripts/guest-boot.sh

# The calls of older kernels beside those of the guest's.
cargo build --quiet -p margay-mtd --example both_ways
set_up_guest root nbd-client:nbd-client mkfs.ext4:e2fsprogs fusermount3:fuse3 -- \
  target/debug/examples/both_ways nbd-client mkfs.ext4 fusermount3 e2fsck --
started=$SECONDS
give_memory

if [ "$mode" = shell ]; then
  qemu-system-x86_64 -accel tcg,thread=multi -smp 2 -m 1024 -kernel "$work/kernel/boot/vmlinuz-$version" \
    -initrd "$initrd" -no-reboot -nographic -nic none -append "console=ttyS0 quiet panic=-1 guest=shell"
  exit
fi

cuts=1
if [ "$mode" = long ]; then
  limit=5400
  cuts=6
fi

echo "guest: NAND and NOR with bad segments and bit errors; programs that are killed"
boot "$work/nand.log" mode="$mode" guest=nand
wait_for 1 '^guest: all done'
cut_power
judge '^guest: all done'

# Each guest checks what those before it have synced, goes on, and loses its power in the middle of it.
disk=0
files=0
rm -f "$memory"
for ((round = 1; round <= cuts + 1; round++)); do
  last=$((round == cuts + 1))
  boot "$work/power-$round.log" mode="$mode" guest=power disk="$disk" files="$files" last="$last"
  if [ "$last" = 1 ]; then
    wait_for 1 '^guest: all done'
    cut_power
    judge '^guest: all done'
  else
    wait_for $((10 + round * 7)) '^synced'
    cut_power
    judge '^synced'
    number() { grep -a "^synced $1" "$log" | tail -1 | tr -dc '0-9'; }
    disk=$(number disk)
    files=$(number files)
    echo "power off by the monitor, without a sync, when $disk files on the disk and $files in the file system were synced"
  fi
done
echo "guest: all passed in $((SECONDS - started)) s"
