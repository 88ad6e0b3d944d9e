#!/bin/sh
# Writes the trace of the MiDAS check (docs/placements.md) to the file named: the whole disk once in order, then fio's Zipf
# writes, as page numbers of 32 bits. Needs fio and python3, 220 MB, and some three minutes.
set -eu
out=${1:?usage: midas-fio.sh OUT.u32 [exponent]}
exponent=${2:-1.1}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkfifo "$folder/iolog"
cat >"$folder/job" <<JOB
[zipf]
ioengine=null
filename=$folder/disk
size=8000000000
bs=4096
rw=randwrite
norandommap=1
randrepeat=1
randseed=1
random_distribution=zipf:$exponent
io_size=$((52284774 * 4096))
write_iolog=$folder/iolog
JOB
python3 -c '
import array, sys
pages = array.array("I", range(8000000000 // 4096))
with open(sys.argv[1], "rb") as log, open(sys.argv[2], "wb") as out:
    for line in log:
        words = line.split()
        if len(words) == 5 and words[2] == b"write":
            pages.append(int(words[3]) // 4096)
        if len(pages) > 1 << 20:
            out.write(pages.tobytes())
            del pages[:]
    out.write(pages.tobytes())
' "$folder/iolog" "$out" &
fio "$folder/job" >/dev/null
wait
