# shellcheck shell=bash
# What the scripts share that boot a guest with simulated raw flash. It is sourced with the name of margay in $margay; a script
# then calls set_up_guest, give_memory, boot, wait_for and cut_power.

# Where the downloaded kernel is, and what is built.
work=$PWD/target/guest
# Where the NOR that survives the guest lies in its memory, which is a file of the host.
nor_at=$((0x18000000))
nor_bytes=$((32 << 20))
# How many seconds a guest may take.
limit=900

skip() {
  echo "SKIPPED: margay on raw flash in a guest: $1"
  [ -z "${CI:-}" ] || exit 1
  exit 0
}

# Makes the kernel and the initial file system of a guest: set_up_guest NAME PROGRAM:PACKAGE... -- COPIED... -- MODULE...
# COPIED are programs of the host and paths of programs that are copied into the guest; busybox and margay are always there.
set_up_guest() {
  local name=$1 needed="qemu-system-x86_64:qemu-system-x86 busybox:busybox-static cpio:cpio depmod:kmod"
  shift
  while [ "$1" != -- ]; do
    needed="$needed $1"
    shift
  done
  shift
  local missing="" pair
  for pair in $needed; do
    command -v "${pair%%:*}" >/dev/null || missing="$missing ${pair##*:}"
  done
  if [ -n "$missing" ]; then
    # shellcheck disable=SC2086
    (apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq $missing) >/dev/null 2>&1 ||
      skip "it needs$missing, which could not be installed"
  fi
  [ "$(uname -m)" = x86_64 ] || skip "the guest is one of x86-64"
  [ -x "$margay" ] || skip "there is no $margay (cargo build --release -p margay)"

  mkdir -p "$work"
  if [ ! -d "$work/kernel/boot" ]; then
    local package
    package=$(apt-cache depends linux-image-amd64 2>/dev/null | sed -n 's/^ *Depends: \(linux-image-[0-9].*\)/\1/p' | head -1)
    [ -n "$package" ] || skip "apt-get knows no kernel package"
    (cd "$work" && rm -f ./*.deb && apt-get download -qq "$package") >/dev/null 2>&1 || skip "$package could not be downloaded"
    rm -rf "$work/unpacked" && dpkg -x "$work"/linux-image-*.deb "$work/unpacked"
    # Most of it is drivers of things that the guest has not got.
    (cd "$work/unpacked/lib/modules"/*/kernel && rm -rf sound net drivers/{gpu,net,media,staging,usb,scsi,infiniband,iio,hwmon,input})
    mv "$work/unpacked" "$work/kernel" && rm -f "$work"/*.deb
  fi
  version=$(ls "$work/kernel/lib/modules")
  [ -f "$work/kernel/lib/modules/$version/modules.dep" ] || depmod -b "$work/kernel" "$version"

  # The initial file system: busybox, a few programs with their libraries, the modules that are needed.
  local root=$work/$name program library module file to
  initrd=$work/$name.initrd
  rm -rf "$root"
  mkdir -p "$root"/{bin,sbin,dev,proc,sys,tmp,run,mnt,etc,guest,lib64,lib/x86_64-linux-gnu}
  cp "$(command -v busybox)" "$root/bin/busybox"
  strip -o "$root/bin/margay" "$margay" 2>/dev/null || cp "$margay" "$root/bin/margay"
  copy_libraries "$margay" "$root"
  while [ "$1" != -- ]; do
    program=$(command -v "$1")
    strip -o "$root/bin/${program##*/}" "$program" 2>/dev/null || cp "$program" "$root/bin/"
    copy_libraries "$program" "$root"
    shift
  done
  shift
  for module in nandsim mtdram phram ubi nbd fuse ext4 crc32c-intel crc32c_generic "$@"; do
    for file in $(modprobe -d "$work/kernel" -S "$version" --show-depends "$module" | sed -n 's/^insmod \([^ ]*\).*/\1/p'); do
      to=$root/lib/modules/$version/${file#*"/modules/$version/"}
      mkdir -p "$(dirname "$to")" && cp -n "$file" "$to"
    done
  done
  cp "$work/kernel/lib/modules/$version"/modules.{order,builtin,builtin.modinfo} "$root/lib/modules/$version/"
  depmod -b "$root" "$version"
  echo "root:x:0:0:root:/:/bin/sh" >"$root/etc/passwd"
  cp scripts/guest/*.sh "$root/guest/"
  cp scripts/guest/init.sh "$root/init"
  chmod +x "$root/init" "$root"/guest/*.sh
  (cd "$root" && find . | cpio -o -H newc --quiet | gzip -1) >"$initrd"
}

# The shared libraries of a program, into the guest: copy_libraries PROGRAM ROOT
copy_libraries() {
  local library
  for library in $(ldd "$1" | grep -o '/[^ ]*\.so[^ ]*'); do
    [ -e "$2$library" ] || cp -L --parents "$library" "$2"
  done
}

# Boots the guest, which runs one of its scripts, in the background: boot LOG NAME=VALUE...
# What is in the memory of a guest is gone at its end, but for the part that its kernel leaves alone, which is the NOR.
boot() {
  log=$1
  shift
  rm -f "$memory.monitor" "$log"
  mkfifo "$memory.monitor"
  qemu-system-x86_64 -accel tcg,thread=multi -smp 2 -m 1024 -machine pc,memory-backend=memory \
    -object memory-backend-file,id=memory,size=1G,mem-path="$memory",share=on \
    -kernel "$work/kernel/boot/vmlinuz-$version" -initrd "$initrd" -no-reboot -display none -nic none \
    -append "console=ttyS0 quiet panic=-1 nokaslr memmap=$nor_bytes\$$nor_at nor_at=$nor_at nor_bytes=$nor_bytes $*" \
    -serial "file:$log" -monitor stdio <"$memory.monitor" >/dev/null &
  guest=$!
  exec 3>"$memory.monitor"
}

# Waits until the guest has said something so often, or has ended: wait_for TIMES WORDS
wait_for() {
  for ((tenth = 0; tenth < limit * 10; tenth++)); do
    touch "$log"
    [ "$(grep -ac "$2" "$log")" -lt "$1" ] || return 0
    # What failed is said after that.
    ! grep -aq '^FAILED' "$log" || { sleep 3 && return 0; }
    kill -0 "$guest" 2>/dev/null || return 0
    sleep 0.1
  done
}

# Cuts the power.
cut_power() {
  echo quit 2>/dev/null >&3 || true
  exec 3>&-
  wait "$guest" || true
  guest=""
}

# Shows what the guest found, and fails if one of its tests did or it did not come to what it was to say: judge WORDS
judge() {
  grep -a '^\(passed\|FAILED\|measured\)' "$log" | tr -d '\r' || true
  if grep -aq '^FAILED' "$log" || ! grep -aq "$1" "$log"; then
    echo "the guest failed, or took over $limit s; the end of $log:" >&2
    tail -40 "$log" >&2
    exit 1
  fi
}

# A file for the guest's memory, in memory where there is room: it is written all the time. Each process that boots guests calls it.
give_memory() {
  guest=""
  mkdir -p "$work"
  memory=$work/memory-$BASHPID
  [ ! -w /dev/shm ] || [ "$(df --output=avail /dev/shm | tail -1)" -lt 2000000 ] || memory=/dev/shm/margay-guest-$BASHPID
  # The guest may have ended before it is told to.
  trap '' PIPE
  trap '[ -z "$guest" ] || kill "$guest" 2>/dev/null || true; rm -f "$memory" "$memory.monitor"' EXIT
  rm -f "$memory"
}
