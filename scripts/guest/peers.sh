# One file system on one simulated chip: what it programs and erases under a workload, what a start after a stop in the middle
# reads and takes, and its memory. Everything is counted by probes below the file system, the same for all. What is found is
# said in one line that begins with "row:"; scripts/flash-peers.sh chooses $chip, $peer and the workload.
. /guest/common.sh

pause=0.02
tries=6000
tracing=/sys/kernel/tracing
mount -t tracefs tracefs $tracing 2>/dev/null
# Nothing is written to flash because time has passed: a guest without hardware virtualization is slow.
echo 0 >/proc/sys/vm/dirty_writeback_centisecs

# The chips, and where their programs, erases and reads are counted: probe NAME FUNCTION FIELDS; the segment is a range of bits.
probe() { echo "p:chip/$1 $2 $3" >>$tracing/kprobe_events || failed "no probe at $2"; }
nand_probes() {
  # nand_prog_page_begin_op is called for pages with spare bytes, nand_prog_page_op for either alone.
  probe programs nand_prog_page_begin_op "segment=%si:b26@6/32"
  probe parts nand_prog_page_op "segment=%si:b26@6/32"
  probe erases nand_erase_op "segment=%si:u32"
  probe reads nand_read_page_op "segment=%si:b26@6/32"
}
nor_probes() {
  probe programs ram_write "segment=%si:b47@17/64 bytes=%dx:u64"
  probe erases ram_erase "segment=+0(%si):b47@17/64 bytes=+8(%si):u64"
}
# The size of the chip: 64, 32 or 16 MiB, as powers of two of segments.
case $mib in
64) nand_2k=9 nand_4k=8 ;;
32) nand_2k=8 nand_4k=7 ;;
*) nand_2k=7 nand_4k=6 ;;
esac
log=""
# The simulator says itself what is done with it.
[ "$peer" != calibrate ] || log=log=1
page_bytes=2048
segment_bytes=131072
case $chip in
nand-2k) chip nandsim id_bytes=0x20,0xf1,0x00,0x15 overridesize=$nand_2k $log ;;
nand-4k)
  page_bytes=4096
  segment_bytes=262144
  chip nandsim id_bytes=0x20,0xf1,0x00,0x26 overridesize=$nand_4k $log
  ;;
nor) chip mtdram total_size=$((mib * 1024)) erase_size=128 ;;
esac
is_nor() { [ "$chip" = nor ]; }
histogram=hist:keys=segment:size=4096
if is_nor; then
  histogram=hist:keys=segment:vals=bytes:size=4096
  nor_probes
else nand_probes; fi
segments=$(($(cat /sys/class/mtd/mtd0/size) / segment_bytes))

# What a probe has counted since: hits NAME; bytes NAME
hits() { sed -n 's/^ *Hits: *\([0-9]*\).*/\1/p' $tracing/events/chip/$1/hist; }
bytes() { sed -n 's/.*bytes: *\([0-9]*\).*/\1/p' $tracing/events/chip/$1/hist | awk '{ sum += $1 } END { printf "%d", sum }'; }
# Counts anew. (A histogram of a probe cannot be cleared, only removed.)
start_counting() {
  for event in $tracing/events/chip/*/trigger; do
    ! grep -q '^hist' $event || echo "!$histogram" >$event || failed "$event: not removed"
    echo "$histogram" >$event || failed "$event: not counted"
  done
}
# Bytes programmed: whole pages of NAND, whatever of them was programmed.
programmed() { if is_nor; then bytes programs; else echo $((($(hits programs) + $(hits parts)) * page_bytes)); fi; }
erased() { if is_nor; then echo $(($(bytes erases) / segment_bytes)); else hits erases; fi; }
pages_read() { if is_nor; then echo -; else hits reads; fi; }
# The erases of segments: how many there are, the sum of squares, minimum, maximum.
spread() {
  sed -n 's/^{ segment: *[0-9]* *}.*hitcount: *\([0-9]*\).*/\1/p' $tracing/events/chip/erases/hist |
    awk -v segments=$segments '{ sum += $1; squares += $1 * $1; if ($1 > max) max = $1; if (NR == 1 || $1 < min) min = $1 }
      END { if (NR < segments) min = 0; 
        printf "segments=%d erases_squared=%d erases_min=%d erases_max=%d", segments, squares, min, max }'
}

# Seconds since the guest started.
now() { cut -d' ' -f1 /proc/uptime; }
seconds_since() { awk -v from="$1" -v to="$(now)" 'BEGIN { printf "%.2f", to - from }'; }

# KiB that the kernel has given to anybody and does not get back: its own of all kinds, without the pages of the simulated chip,
# and those of programs. What is free says less: lists of free pages of each processor are not counted as free.
memory_taken() {
  sync
  for _ in 1 2 3; do
    echo 3 >/proc/sys/vm/drop_caches
    sleep 0.5
  done
  chip_kib=$(awk '$1 == "nandsim" { print $15 * $6 * 4 }' /proc/slabinfo)
  awk -v chip="${chip_kib:-0}" '/^(Slab|VmallocUsed|KernelStack|PageTables|Percpu|AnonPages):/ { sum += $2 }
    END { print sum - chip }' /proc/meminfo
}
modules_kib() { awk -v names=" $* " 'index(names, " " $1 " ") { sum += $2 } END { printf "%d", sum / 1024 }' /proc/modules; }
program_kib() { echo $(($(wc -c </bin/margay) / 1024)); }
resident() { sed -n "s/^$1:[^0-9]*\([0-9]*\).*/\1/p" /proc/"$2"/status; }

# Formats by margay at whole capacity if it can, else in pairs of pages.
margay_format() {
  layout=whole
  margay "$@" /dev/mtd0 >/tmp/out 2>&1 && return
  layout=pairs
  margay "$@" /dev/mtd0 --pair-pages >/tmp/out 2>&1 || {
    failed "margay $*"
    cat /tmp/out
  }
}
layout=-
quietly() { "$@" >/tmp/out 2>&1 || {
  failed "$* ended with $?"
  cat /tmp/out
}; }
on_disk() { quietly mount -t "$1" -o "$2" "$3" /mnt; }

# The file systems: format_PEER, start_PEER (mounts what is on the chip), stop_PEER, code_PEER (KiB).
case $peer in
ubifs)
  modprobe -a ubi ubifs
  format_peer() {
    quietly ubiformat /dev/mtd0 -y -q
    quietly ubiattach -m 0
    quietly ubimkvol /dev/ubi0 -N files -m
    quietly ubidetach -m 0
  }
  start_peer() {
    quietly ubiattach -m 0
    quietly mount -t ubifs ubi0:files /mnt
  }
  stop_peer() { quietly umount /mnt && quietly ubidetach -m 0; }
  code_peer() { modules_kib ubi ubifs; }
  ;;
jffs2)
  modprobe jffs2
  format_peer() { quietly flash_erase -q -j /dev/mtd0 0 0; }
  start_peer() { quietly mount -t jffs2 mtd0 /mnt; }
  stop_peer() { quietly umount /mnt; }
  code_peer() { modules_kib jffs2; }
  ;;
margay-files)
  format_peer() { margay_format fs format; }
  start_peer() { mount_files /dev/mtd0 /mnt; }
  stop_peer() { end_mount /mnt; }
  code_peer() { echo $(($(modules_kib fuse) + $(program_kib))); }
  process_peer() { echo "$mounter"; }
  ;;
margay-ext4 | margay-f2fs)
  modprobe -a f2fs
  format_peer() {
    margay_format format
    serve /dev/mtd0
    if [ $peer = margay-ext4 ]; then quietly mkfs.ext4 -q -F /dev/nbd0; else quietly mkfs.f2fs -q -f /dev/nbd0; fi
    end_serve
  }
  start_peer() {
    serve /dev/mtd0
    on_disk ${peer#margay-} discard /dev/nbd0
  }
  stop_peer() { quietly umount /mnt && end_serve; }
  code_peer() { echo $(($(modules_kib nbd ext4 jbd2 mbcache) + $(program_kib))); }
  [ $peer = margay-ext4 ] || code_peer() { echo $(($(modules_kib nbd f2fs) + $(program_kib))); }
  process_peer() { echo "$server"; }
  ;;
f2fs)
  modprobe -a mtdblock f2fs
  format_peer() { quietly mkfs.f2fs -q -f /dev/mtdblock0; }
  start_peer() { on_disk f2fs discard /dev/mtdblock0; }
  stop_peer() { quietly umount /mnt; }
  code_peer() { modules_kib f2fs mtdblock; }
  ;;
calibrate)
  # A known number of pages and segments, to see that all of them are counted and nothing else.
  mount -t debugfs debugfs /sys/kernel/debug
  is_nor || echo 'module nandsim format "log:" +p' >/sys/kernel/debug/dynamic_debug/control
  dmesg -c >/dev/null
  start_counting
  quietly flash_erase -q /dev/mtd0 0 12
  if is_nor; then
    dd if=/dev/urandom of=/dev/mtd0 bs=1000 count=123 2>/dev/null
    found="erases=$(erased) programs_due=123 bytes_due=123000 programs=$(hits programs) bytes=$(programmed)"
  else
    said() { dmesg | grep -c "log: $1"; }
    dd if=/dev/urandom of=/tmp/pages bs=$page_bytes count=345 2>/dev/null
    quietly nandwrite -q /dev/mtd0 /tmp/pages
    found="erases=$(erased) erases_said=$(said 'erase sector') programs_due=345 programs=$(($(programmed) / page_bytes)) programs_said=$(said 'programm page')"
    dmesg -c >/dev/null
    start_counting
    quietly nanddump -q -l $((100 * page_bytes)) -f /tmp/read /dev/mtd0
    found="$found reads_due=100 reads=$(pages_read) reads_said=$(said 'read page')"
  fi
  echo "row: chip=$chip mib=$mib peer=$peer erases_due=12 $found"
  echo "guest: all done"
  exit
  ;;
esac

files() { work_on_files "$1" /mnt "$seed" "$data" "$writes" "$sync_every" "$content"; }
field() { sed -n "s/.*\b$1=\([0-9]*\).*/\1/p" /tmp/said; }

format_peer
memory_before=$(memory_taken)
start_peer
capacity=$(df -k /mnt | awk 'END { print $(NF - 4) }')
room=$(df -k /mnt | awk 'END { print $(NF - 2) }')
echo "guest: formatted, $room KiB of $capacity free, $(now) s"

start_counting
started=$(now)
files fill >/tmp/said || failed "fill"
fill_seconds=$(seconds_since "$started")
fill_bytes=$(programmed)
fill_written=$(field written)
echo "guest: filled, $(now) s"
start_counting
started=$(now)
files work >/tmp/said || failed "work"
work_seconds=$(seconds_since "$started")
row="fill_written=$fill_written fill_programmed=$fill_bytes fill_seconds=$fill_seconds written=$(field written) operations=$(field operations) syncs=$(field syncs)"
row="$row programmed=$(programmed) erases=$(erased) $(spread) work_seconds=$work_seconds"
echo "guest: worked, $(now) s"
files tail >/tmp/said || failed "tail"

# What the chip holds in the middle of work. A program that serves it is stopped, and so is the thread that cleans for JFFS2; it is
# copied again if anything was programmed or erased meanwhile.
signal_peer() {
  if [ $peer = jffs2 ]; then
    kill "-$1" "$(pidof jffs2_gcd_mtd0)"
  elif type process_peer >/dev/null 2>&1; then kill "-$1" "$(process_peer)"; fi
}
signal_peer STOP
for _ in 1 2 3 4 5 6 7 8 9 10; do
  start_counting
  if is_nor; then dd if=/dev/mtd0 of=/tmp/chip bs=128k 2>/dev/null; else quietly nanddump -q -n -o -f /tmp/chip /dev/mtd0; fi
  [ "$(programmed)$(erased)" != 00 ] || break
done
[ "$(programmed)$(erased)" = 00 ] || failed "the chip is written all the time"
signal_peer CONT
echo "guest: copied, $(now) s"
stop_peer
quietly flash_erase -q /dev/mtd0 0 0
if is_nor; then dd if=/tmp/chip of=/dev/mtd0 bs=128k 2>/dev/null; else quietly nandwrite -q -n -o /dev/mtd0 /tmp/chip; fi
rm /tmp/chip
echo "guest: put back, $(now) s"

echo 3 >/proc/sys/vm/drop_caches
start_counting
started=$(now)
start_peer
ls /mnt >/dev/null
row="$row mount_seconds=$(seconds_since "$started") mount_reads=$(pages_read) mount_programmed=$(programmed) mount_erases=$(erased)"
files check >/tmp/said 2>&1 || {
  failed "files are not as they were synced"
  cat /tmp/said
}
row="$row files=$(field files) doubtful=$(field doubtful) differing=$(field differing)"
row="$row memory_kib=$(($(memory_taken) - memory_before))"
if type process_peer >/dev/null 2>&1; then
  row="$row resident_kib=$(resident VmRSS "$(process_peer)") resident_max_kib=$(resident VmHWM "$(process_peer)")"
else
  row="$row resident_kib=- resident_max_kib=-"
fi
echo "row: chip=$chip mib=$mib peer=$peer seed=$seed content=$content sync_every=$sync_every data=$data layout=$layout capacity_kib=$capacity room_kib=$room $row code_kib=$(code_peer)"
stop_peer
echo "guest: all done"
