#!/usr/bin/env bash
# The MODA paper's benchmarks through the mounted file system, on today's pages, with each allocator given (and with
# cost-benefit, if it is not lifetime): file-benchmarks.sh MARGAY [ALLOCATOR...]
set -euo pipefail
margay=$1
shift
[ $# -gt 0 ] || set -- sequential moda predictive lifetime
folder=$(mktemp -d)
trap 'fusermount3 -uz "$folder/mnt" 2>/dev/null || true; rm -rf "$folder"' EXIT
mkdir "$folder/mnt"
printf '%-6s %-10s %-12s %8s %8s %8s %8s %8s %10s\n' page benchmark allocator WA erases U I P seconds
for page in 2048 4096; do
  for benchmark in camera movie phone recorder fax postmark andrew; do
    for allocator in "$@"; do
      "$margay" fs format "$folder/flash.img" --force --size 96M --page-bytes $page --pages-per-segment 64 \
        --spare-bytes 128 -a "$allocator" -s "$([ "$allocator" = lifetime ] && echo lifetime || echo cost-benefit)" >/dev/null
      "$margay" mount "$folder/flash.img" "$folder/mnt" --no-sync --commit 1 --metrics "$folder/metrics" 2>/dev/null &
      until grep -q " $folder/mnt fuse" /proc/mounts; do sleep 0.05; done
      took=$("$margay" fs bench "$benchmark" "$folder/mnt" --keep | sed -n 's/.* steps in \([0-9.]*\) s.*/\1/p')
      sleep 1.3
      awk -v page=$page -v benchmark=$benchmark -v allocator=$allocator -v took="$took" '
        { value[$1] = $2 }
        END {
          pages = value["margay_fs_data_pages_total"] + value["margay_fs_header_pages_total"] + value["margay_fs_copied_pages_total"]
          printf "%-6s %-10s %-12s %8.2f %8d %8.3f %8.4f %8.4f %10s\n", page, benchmark, allocator,
            pages * page / value["margay_fs_bytes_written_total"], value["margay_fs_erases_total"],
            value["margay_fs_utilization"], value["margay_fs_invalidity"], value["margay_fs_uniformity"], took
        }' "$folder/metrics"
      fusermount3 -u "$folder/mnt"
      wait
      rm -f "$folder/flash.img" "$folder/metrics"
    done
  done
done
