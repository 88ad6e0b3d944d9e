#!/usr/bin/env bash
# Copies data through a served image and compares: demo-disk.sh MARGAY IMAGE
set -euo pipefail
margay=$1 image=$2
if ! command -v nbdcopy >/dev/null; then
  (apt-get update -qq && apt-get install -y -qq libnbd-bin) >/dev/null 2>&1 || {
    echo "nbdcopy (libnbd-bin) is not installed and could not be: the copy is left out"
    exit 0
  }
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
head -c 16000000 /dev/urandom > "$folder/in"
"$margay" serve "$image" --run "nbdinfo --size \$uri && nbdcopy $folder/in \$uri && nbdcopy \$uri $folder/out"
cmp -n 16000000 "$folder/in" "$folder/out" && echo "16,000,000 bytes came back as they were written"
