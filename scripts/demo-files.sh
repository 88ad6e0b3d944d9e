#!/usr/bin/env bash
# Unpacks and builds the C library of zstd (which every build of margay has at hand) on a mounted image, kills the
# file system in the middle of it, and goes on: demo-files.sh MARGAY IMAGE
set -euo pipefail
margay=$1 image=$2
if [ ! -e /dev/fuse ] || ! command -v fusermount3 >/dev/null; then
  (apt-get update -qq && apt-get install -y -qq fuse3) >/dev/null 2>&1 || true
fi
if [ ! -e /dev/fuse ] || ! command -v fusermount3 >/dev/null; then
  echo "there is no FUSE here (/dev/fuse, fusermount3): the mount is left out"
  exit 0
fi
tree=$(ls -d "${CARGO_HOME:-$HOME/.cargo}"/registry/src/*/zstd-sys-*/zstd/lib | head -n 1)
folder=$(mktemp -d)
trap 'fusermount3 -uz "$folder" 2>/dev/null || true; rmdir "$folder" 2>/dev/null || true' EXIT
mounted() { until grep -q " $folder fuse" /proc/mounts; do sleep 0.05; done; }

"$margay" mount "$image" "$folder" & mounted
tar -C "$tree" -cf - . | tar -C "$folder" -xf -
diff -r "$tree" "$folder"
sync "$folder"
(cd "$folder" && for f in common/*.c; do cc -O1 -c "$f" -o "$(basename "$f" .c).o"; done)
sync "$folder"
echo "== kill -9"
kill -9 $! && wait $! 2>/dev/null || true
fusermount3 -uz "$folder"
"$margay" fs check "$image"
"$margay" mount "$image" "$folder" & mounted
(cd "$folder" && for f in compress/*.c decompress/*.c; do cc -O1 -DZSTD_DISABLE_ASM -c "$f" -o "$(basename "$f" .c).o"; done && ar rcs libzstd.a ./*.o && ls -l libzstd.a)
fusermount3 -u "$folder"
wait
"$margay" fs check "$image"
"$margay" fs stat "$image"
