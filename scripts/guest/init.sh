#!/bin/busybox sh
# The first program of the guest: sees to what programs expect, then runs the script that the kernel was told of.
/bin/busybox --install -s /bin
export PATH=/bin:/sbin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mount -t tmpfs tmp /tmp
ip link set lo up 2>/dev/null
echo /bin/modprobe >/proc/sys/kernel/modprobe
modprobe -a crc32c_generic nbd fuse ext4
for word in $(cat /proc/cmdline); do
  case $word in
  guest=* | mode=* | nor_at=* | nor_bytes=* | disk=* | files=* | last=*) export "${word?}" ;;
  chip=* | mib=* | peer=* | seed=* | content=* | sync_every=* | data=* | writes=*) export "${word?}" ;;
  esac
done
cd /guest || exit
if [ "$guest" = shell ]; then
  modprobe nandsim
  setsid cttyhack sh
else
  sh "/guest/$guest.sh"
fi
sync
poweroff -f
