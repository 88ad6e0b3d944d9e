# A disk and a file system on NOR that keeps what it holds when the guest loses its power: a part of its memory, which is a file of
# the host. $disk and $files are the numbers of the last files that were synced before the power was cut.
. /guest/common.sh
modprobe phram
half=$((nor_bytes / 2))
echo "disk,$nor_at,$half,131072" >/sys/module/phram/parameters/phram
echo "files,$((nor_at + half)),$half,131072" >/sys/module/phram/parameters/phram
until_true test -c /dev/mtd1
mkdir -p /mnt/disk /mnt/files

# Of what was synced the last twenty are still there; older ones may be removed.
first() { if [ "$1" -gt 20 ]; then echo $(($1 - 19)); else echo 1; fi; }

if [ "$disk" = 0 ]; then
  # The memory is all zeros.
  must "NOR, disk: format" margay format /dev/mtd0 --force
  must "NOR, files: fs format" margay fs format /dev/mtd1 --force
else
  must "NOR, disk: check after a power cut" margay check /dev/mtd0
  must "NOR, files: fs check after a power cut" margay fs check /dev/mtd1
fi
serve /dev/mtd0
[ "$disk" != 0 ] || mkfs.ext4 -q -F /dev/nbd0
must "NOR, disk: mount" mount -t ext4 /dev/nbd0 /mnt/disk
mount_files /dev/mtd1 /mnt/files
if [ "$disk" != 0 ]; then
  must "NOR, disk: everything that was synced is there" same /mnt/disk "$(first "$disk")" "$disk"
  must "NOR, files: everything that was synced is there" same /mnt/files "$(first "$files")" "$files"
fi
if [ "$last" = 1 ]; then
  umount /mnt/disk
  must "NOR, disk: fsck" e2fsck -fn /dev/nbd0
  end_serve
  end_mount /mnt/files
  must "NOR, disk: check after the end" margay check /dev/mtd0
  must "NOR, files: fs check after the end" margay fs check /dev/mtd1
  echo "guest: all done"
  exit
fi

# Both at once, until the power is cut.
work() {
  number=$2
  while true; do
    number=$((number + 1))
    put "/mnt/$1" $number && echo "synced $1 $number"
    rm -f "/mnt/$1/f$((number - 40))"
  done
}
work disk "$disk" &
work files "$files"
wait
