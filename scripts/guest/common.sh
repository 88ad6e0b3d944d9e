# What the scripts of the guest share.

passed() { echo "passed: $*"; }
failed() { echo "FAILED: $*"; }

# Runs a command that has to succeed: must WHAT COMMAND...
must() {
  local what=$1
  shift
  if "$@" >/tmp/out 2>&1; then passed "$what"; else
    failed "$what: $* ended with $?"
  fi
  cat /tmp/out
}

# Runs a command that has to fail and say something: refuses WHAT WORDS COMMAND...
refuses() {
  local what=$1 words=$2
  shift 2
  if "$@" >/tmp/out 2>&1; then
    failed "$what: $* succeeded"
    cat /tmp/out
  elif grep -q "$words" /tmp/out; then passed "$what"; else
    failed "$what: it does not say: $words"
    cat /tmp/out
  fi
}

# Loads a simulated chip instead of the one before.
chip() {
  for module in nandsim mtdram; do rmmod $module 2>/dev/null; done
  modprobe "$@" 2>/dev/null || modprobe "$@" || failed "modprobe $*"
  for _ in 1 2 3 4 5 6 7 8 9 10; do
    [ -c /dev/mtd0 ] && return
    sleep 0.2
  done
  failed "there is no /dev/mtd0 after modprobe $*"
}

# Waits for up to a minute until a command succeeds, or as often and as long as $tries and $pause say.
until_true() {
  for _ in $(seq ${tries:-300}); do
    "$@" >/dev/null 2>&1 && return
    sleep ${pause:-0.2}
  done
  failed "not in time: $*"
}

is_connected() { [ "$(cat /sys/block/nbd0/size)" -gt 0 ]; }

# Serves the disk of a chip to the kernel, as /dev/nbd0.
serve() {
  rm -f /tmp/socket
  margay serve "$1" --unix /tmp/socket 2>/tmp/serve.log &
  server=$!
  until_true test -S /tmp/socket
  nbd-client -unix /tmp/socket /dev/nbd0 -b 4096 >/tmp/out 2>&1 || {
    failed "nbd-client"
    cat /tmp/out /tmp/serve.log
  }
  until_true is_connected
}

# Ends the server as ctrl-C does.
end_serve() {
  nbd-client -d /dev/nbd0 >/dev/null 2>&1
  kill -INT "$server" 2>/dev/null
  wait "$server"
  ended=$?
  [ "$ended" = 0 ] || {
    failed "margay serve ended with $ended"
    cat /tmp/serve.log
  }
}

# Kills the server, and takes the disk from the kernel.
kill_serve() {
  kill -9 "$server"
  wait "$server" 2>/dev/null
  umount /mnt 2>/dev/null || umount -l /mnt
  nbd-client -d /dev/nbd0 >/dev/null 2>&1
  sleep 1
}

is_mounted() { grep -q " $1 fuse" /proc/mounts; }

# Mounts the file system of a chip: mount_files CHIP FOLDER
mount_files() {
  mkdir -p "$2"
  margay mount "$1" "$2" 2>/tmp/mount.log &
  mounter=$!
  until_true is_mounted "$2"
}

end_mount() {
  umount "$1" 2>/dev/null || fusermount3 -u "$1"
  wait "$mounter"
  ended=$?
  [ "$ended" = 0 ] || {
    failed "margay mount ended with $ended"
    cat /tmp/mount.log
  }
}

kill_mount() {
  kill -9 "$mounter"
  wait "$mounter" 2>/dev/null
  umount "$1" 2>/dev/null || umount -l "$1"
}

# Content of the file of a number: 20 to 120 KB.
content() { yes "line of file $1" | head -c $((20000 + $1 * 7919 % 100000)); }

# Writes a file and waits until it is on flash: put FOLDER NUMBER
put() { content "$2" | dd of="$1/f$2" bs=16k conv=fsync 2>/dev/null; }

# Compares files with what was written: same FOLDER FIRST LAST
same() {
  bad=0
  for number in $(seq "$2" "$3"); do
    content "$number" | cmp -s - "$1/f$number" || bad=$((bad + 1))
  done
  [ "$bad" = 0 ] || echo "$bad of the files $2 to $3 in $1 are not what was synced"
  [ "$bad" = 0 ]
}
