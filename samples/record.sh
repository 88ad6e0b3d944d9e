#!/usr/bin/env bash
# Records the page writes of SQLite under a message-store load, as samples/sqlite-messages.mgt.
# Needs strace, python3 (its sqlite3 module) and a margay binary: samples/record.sh target/release/margay
set -euo pipefail
margay=$(realpath "${1:-target/release/margay}")
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
strace -f -ttt -y -e trace=pwrite64,fsync,fdatasync,ftruncate -o calls.txt python3 "$here/message_store.py" store.db
python3 "$here/strace_to_csv.py" calls.txt store.db > store.csv
"$margay" trace convert store.csv "$here/sqlite-messages.mgt"
"$margay" trace info "$here/sqlite-messages.mgt"
