#!/bin/sh
# A sort whose heap is mostly on flash, compared with an ordinary one. Usage: demo-vm.sh MARGAY
set -eu
margay=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
seq 1 60000 | awk '{ printf "%07d line %d\n", ($1 * 7919) % 1000003, $1 }' > "$folder/lines"
echo "\$ margay vm run --ram 2M --memory 128M -- sort --parallel=1 -S 30M lines -o sorted"
if ! "$margay" vm run --ram 2M --memory 128M -- \
    sort --parallel=1 -S 30M "$folder/lines" -o "$folder/sorted" 2> "$folder/said"; then
    cat "$folder/said"
    grep -q userfaultfd "$folder/said" || exit 1
    echo "SKIPPED: the rest of this demonstration"
    exit 0
fi
cat "$folder/said"
sort "$folder/lines" | cmp - "$folder/sorted" && echo "the result is that of an ordinary sort"
