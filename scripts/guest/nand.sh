# NAND and NOR that the kernel simulates, with bad segments and bit errors. Programs are killed in the middle of their work.
. /guest/common.sh

# 2 KiB pages with 64 spare bytes, of which the ECC leaves 38: short tags; 128 KiB a segment. And 4 KiB pages with 128 spare bytes, of
# which it leaves 78; 256 KiB a segment. `long` takes all of them (256 and 128 MiB), `short` 256 segments. And 2 KiB pages whose ECC
# leaves 10, and 512-byte pages with 16 spare bytes (64 MiB): tags in summaries, or pairs.
small="id_bytes=0x20,0xf1,0x00,0x15 overridesize=8"
wide="id_bytes=0x20,0xf1,0x00,0x26 overridesize=8"
tiny=id_bytes=0x20,0x76
files=12
rounds=1
if [ "$mode" = long ]; then
  small=id_bytes=0x20,0xaa,0x00,0x15
  wide=id_bytes=0x20,0xf1,0x00,0x26
  files=60
  rounds=5
fi

echo "guest: chips that are refused"
chip nandsim $small
refuses "a new chip holds no disk" "no margay superblock" margay info /dev/mtd0
refuses "a chip has its own shape" "shape of its own" margay format /dev/mtd0 --size 64M
refuses "the device for reading only" "/dev/mtd0" margay format /dev/mtd0ro
refuses "another device" "character device of raw flash" margay info /dev/null
must "pages are read alike by the calls of older kernels" both_ways /dev/mtd0
must "a chip is formatted" margay format /dev/mtd0
refuses "a chip that is used is not formatted unasked" "with --force" margay format /dev/mtd0
must "with --force it is" margay format /dev/mtd0 --force
margay serve /dev/mtd0 --unix /tmp/socket 2>/tmp/serve.log &
server=$!
until_true test -S /tmp/socket
refuses "two programs on one chip" "margay serve /dev/mtd0" margay check /dev/mtd0
refuses "nor by way of the other device" "margay serve\|another process\|uses it" margay check /dev/mtd0ro
kill -INT $server
wait $server
must "after its end it is read" margay info /dev/mtd0

chip nandsim $small
modprobe ubi mtd=0
refuses "a chip that UBI has attached" "as ubi0: two programs" margay format /dev/mtd0 --force
rmmod ubi

# The simulator and the kernel count the bytes of an address of this one in different ways: no operation of it succeeds.
chip nandsim id_bytes=0x20,0xaa,0x00,0x26
refuses "a chip that is not what it says" "of the chip.s 1024 segments are marked bad" margay format /dev/mtd0

# The disk with ext4, killed and opened again.
disk() {
  what=$1
  shift
  must "$what: format" margay format /dev/mtd0 "$@"
  serve /dev/mtd0
  must "$what: mkfs.ext4" mkfs.ext4 -q -F /dev/nbd0
  must "$what: mount" mount -t ext4 /dev/nbd0 /mnt
  first=1
  last=$files
  for _ in $(seq $rounds); do
    for number in $(seq $first $last); do put /mnt $number; done
    # In the middle of what comes then.
    (for number in $(seq 1000 1100); do put /mnt $number; done) 2>/dev/null &
    writer=$!
    sleep 2
    kill_serve
    kill $writer 2>/dev/null
    wait $writer 2>/dev/null
    must "$what: check after a kill" margay check /dev/mtd0
    serve /dev/mtd0
    must "$what: mount after a kill" mount -t ext4 /dev/nbd0 /mnt
    must "$what: everything that was synced is there" same /mnt 1 $last
    first=$((last + 1))
    last=$((last + files))
    rm -f /mnt/f1???
  done
  umount /mnt
  must "$what: fsck" e2fsck -fn /dev/nbd0
  end_serve
  must "$what: check after the end" margay check /dev/mtd0
  }

# The file system, killed and mounted again.
tree() {
  what=$1
  shift
  must "$what: fs format" margay fs format /dev/mtd0 "$@"
  mount_files /dev/mtd0 /mnt
  first=1
  last=$files
  for _ in $(seq $rounds); do
    mkdir -p /mnt/a/b
    for number in $(seq $first $last); do put /mnt/a/b $number; done
    (for number in $(seq 1000 1100); do put /mnt/a $number; done) 2>/dev/null &
    writer=$!
    sleep 2
    kill_mount /mnt
    kill $writer 2>/dev/null
    wait $writer 2>/dev/null
    must "$what: fs check after a kill" margay fs check /dev/mtd0
    mount_files /dev/mtd0 /mnt
    must "$what: everything that was synced is there" same /mnt/a/b 1 $last
    first=$((last + 1))
    last=$((last + files))
    rm -f /mnt/a/f1???
  done
  must "$what: files are renamed and removed" sh -c 'mv /mnt/a/b/f1 /mnt/c && rm /mnt/a/b/f2 && ls -lR /mnt'
  end_mount /mnt
  must "$what: fs check after the end" margay fs check /dev/mtd0
  must "$what: a file is read without mounting" margay fs get /dev/mtd0 c /tmp/c --force
  content 1 | cmp -s - /tmp/c || failed "$what: the file differs"
}

# Segments that have failed in use are retired, and marked when the program stops: marked AFTER_FORMAT ANCHORS
# A segment 0 that is bad is no retired one, since it would not hold data.
marked() {
  local bad retired
  bad=$(cat /sys/class/mtd/mtd0/bad_blocks)
  retired=$(sed -n 's/^retired segments *\([0-9]*\).*/\1/p' /tmp/info)
  echo "measured: $what: $bad segments are marked bad, $1 of them since before it was formatted; $retired are retired"
  [ "$bad" -gt "$1" ] && [ "$bad" -eq $((retired + $2)) ]
}

# Programs fail on the pages 200, 300 and 1000; erases of some segments fail after the one of formatting. A bit flips in one read of a
# thousand.
faults="weakpages=200:0,300:0,1000:0 weakblocks=12:1,14:1,16:1,18:1,20:1,22:1,24:1,26:1,28:1,30:1 bitflips=1"

echo "guest: NAND of 2 KiB pages with short tags, with bad segments and bit errors"
chip nandsim $small $faults badblocks=5,70
disk "short tags, disk"
margay info /dev/mtd0 >/tmp/info
must "short tags, disk: segments that failed are marked" marked 2 0
chip nandsim $small $faults badblocks=0,5,70
tree "short tags, files"
margay fs stat /dev/mtd0 >/tmp/info
must "short tags, files: segments that failed are marked" marked 3 1

echo "guest: NAND of 2 KiB pages with BCH-8, tags in summaries, with bad segments and bit errors"
chip nandsim $small bch=8 $faults badblocks=5,70
must "10 spare bytes are left" grep -qx 10 /sys/class/mtd/mtd0/oobavail
disk "summaries, disk"
margay info /dev/mtd0 >/tmp/info
must "summaries, disk: segments that failed are marked" marked 2 0
chip nandsim $small bch=8 $faults badblocks=0,5,70
tree "summaries, files"
margay fs stat /dev/mtd0 >/tmp/info
must "summaries, files: segments that failed are marked" marked 3 1

echo "guest: NAND of 512-byte pages with summaries and in pairs, with bad segments and bit errors"
chip nandsim $tiny $faults badblocks=5,70
disk "small pages, disk"
margay info /dev/mtd0 >/tmp/info
must "small pages, disk: segments that failed are marked" marked 2 0
chip nandsim $tiny $faults badblocks=0,5,70
tree "pairs, files" --pair-pages
margay fs stat /dev/mtd0 >/tmp/info
must "pairs, files: segments that failed are marked" marked 3 1

echo "guest: NAND of 4 KiB pages at full capacity, with bad segments and bit errors"
chip nandsim $wide $faults badblocks=0,5,70
disk "spare area, disk" --endurance 100000
margay info /dev/mtd0 >/tmp/info
must "spare area, disk: segments that failed are marked" marked 3 1
chip nandsim $wide $faults badblocks=5,70
tree "spare area, files"
margay fs stat /dev/mtd0 >/tmp/info
must "spare area, files: segments that failed are marked" marked 2 0

echo "guest: NOR"
chip mtdram total_size=32768 erase_size=128
disk "NOR, disk"
chip mtdram total_size=32768 erase_size=128
tree "NOR, files"

echo "guest: all done"
