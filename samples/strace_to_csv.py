"""Turns `strace -ttt -y` lines of writes to one database into a trace: each file is a device of its own."""

import re
import sys

calls, database = sys.argv[1:]
write = re.compile(r"(\d+\.\d+) pwrite64\(\d+<([^>]*)>, .*, (\d+), (\d+)\) = (\d+)")
devices = {database: 0, database + "-wal": 1, database + "-journal": 2, database + "-shm": 3}
start = None
print("time_us,op,device,offset_bytes,len_bytes")
with open(calls, errors="replace") as lines:
    for line in lines:
        found = write.search(line)
        if not found:
            continue
        seconds, path, _, offset, length = found.groups()
        device = devices.get(path.rsplit("/", 1)[-1])
        if device is None:
            continue
        start = float(seconds) if start is None else start
        print(f"{int((float(seconds) - start) * 1e6)},write,{device},{offset},{length}")
