#!/usr/bin/env bash
# Throughput and latency of a served image beside nbdkit's file plugin, alternating in one run, with fio.
set -euo pipefail
cd "$(dirname "$0")/.."
margay=target/release/margay
for tool in fio nbdkit; do
  command -v $tool >/dev/null || (apt-get update -qq && apt-get install -y -qq fio nbdkit) >/dev/null
done
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cat > "$folder/job.sh" <<'JOB'
cd "$folder"
fio --name=x --ioengine=nbd --uri="$uri" --rw=$1 --bs=4k --size=200m --iodepth=$2 --time_based --runtime=8 \
  --fsync=$3 --output-format=json 2>/dev/null | sed -n '/^{/,$p' | python3 -c "
import json, sys
job = json.load(sys.stdin)['jobs'][0]
side = job['read'] if '$1' == 'randread' else job['write']
p = side['clat_ns']['percentile']
print('%-7s $1 depth $2 fsync $3: %7.0f IOPS, p50 %6.0f us, p99 %6.0f us, p99.9 %6.0f us' % ('$4', side['iops'], p['50.000000']/1e3, p['99.000000']/1e3, p['99.900000']/1e3))"
JOB
export folder
$margay format "$folder/flash.img" --size 256M > /dev/null
truncate -s 230M "$folder/plain.img"
for round in 1 2; do
  for job in "randwrite 1 0" "randwrite 16 0" "randwrite 1 1" "randread 16 0"; do
    $margay serve "$folder/flash.img" --run "sh $folder/job.sh $job margay"
    nbdkit file "$folder/plain.img" --run "uri=\$uri sh $folder/job.sh $job nbdkit"
  done
done
