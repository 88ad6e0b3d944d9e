#!/usr/bin/env python3
"""A served image beside other NBD servers, by turns in one run, each on a filled file of the same size.

usage: scripts/bench-doors.py [--margay FILE] [--rounds N] [--seconds S] [--busy] [--size MIB]

fio's nbd engine over a Unix socket: IOPS or MB/s, the 99th percentile of the time of a request, and the processor time
of the server for each request; medians of the rounds, with the smallest and the largest. With --busy another
program writes 64 MiB again and again meanwhile, and syncs. Installs fio, nbdkit and qemu-utils if they are missing.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import tempfile
import time

JOBS = [
    ("4 KiB random write, depth 1", "randwrite", "4k", 1),
    ("4 KiB random write, depth 16", "randwrite", "4k", 16),
    ("4 KiB random write, depth 64", "randwrite", "4k", 64),
    ("4 KiB random read, depth 1", "randread", "4k", 1),
    ("4 KiB random read, depth 16", "randread", "4k", 16),
    ("1 MiB write, depth 4", "write", "1M", 4),
    ("1 MiB read, depth 4", "read", "1M", 4),
]


def wait_for(path, process):
    for _ in range(200):
        if os.path.exists(path):
            return
        if process.poll() is not None:
            break
        time.sleep(0.05)
    raise SystemExit(f"{path}: no server listens there")


def cpu_seconds(pid):
    """User and system time of a process and its threads."""
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def fio(socket, kind, size, depth, mib, seconds):
    command = ["fio", "--name=x", "--ioengine=nbd", f"--uri=nbd+unix:///?socket={socket}", f"--rw={kind}"]
    command += [f"--bs={size}", f"--size={mib}m", f"--iodepth={depth}", "--output-format=json", "--randrepeat=0"]
    if seconds:
        command += ["--time_based", f"--runtime={seconds}"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=os.path.dirname(socket))
    text = done.stdout
    if done.returncode != 0 or "{" not in text:
        raise SystemExit(f"fio failed on {socket}: {done.stderr or text}")
    job = json.loads(text[text.index("{") :])["jobs"][0]
    return job["read" if "read" in kind else "write"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--margay", default="target/release/margay")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=3)
    parser.add_argument("--size", type=int, default=256, help="MiB of flash; 78 percent of that are written")
    parser.add_argument("--busy", action="store_true")
    args = parser.parse_args()
    margay = os.path.abspath(args.margay)
    tools = {"fio": "fio", "nbdkit": "nbdkit", "qemu-nbd": "qemu-utils"}
    missing = [package for tool, package in tools.items() if not shutil.which(tool)]
    if missing:
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        subprocess.run(["apt-get", "update", "-qq"], check=True, **quiet)
        subprocess.run(["apt-get", "install", "-y", "-qq", *missing], check=True, **quiet)

    # Not /tmp, which may be memory.
    folder = tempfile.mkdtemp(prefix="margay-doors-", dir="/var/tmp")
    mib = args.size * 78 // 100
    servers, processes = {}, []

    def serve(name, command):
        socket = f"{folder}/{len(servers)}.sock"
        command = [part.replace("SOCKET", socket) for part in command]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        processes.append(process)
        wait_for(socket, process)
        servers[name] = (socket, process.pid)

    try:
        for name, options in [("margay", []), ("margay --no-sync", ["--no-sync"])]:
            image = f"{folder}/{len(servers)}.img"
            subprocess.run([margay, "format", image, "--size", f"{args.size}M"], check=True, stdout=subprocess.DEVNULL)
            serve(name, [margay, "serve", image, "--unix", "SOCKET", *options])
        for name, command in [
            ("nbdkit file", ["nbdkit", "-f", "-U", "SOCKET", "file", "FILE"]),
            ("nbdkit memory", ["nbdkit", "-f", "-U", "SOCKET", "memory", f"{mib + 26}M"]),
            ("qemu-nbd raw", ["qemu-nbd", "-f", "raw", "-t", "-e", "8", "-k", "SOCKET", "FILE"]),
        ]:
            file = f"{folder}/{len(servers)}.raw"
            if "FILE" in command:
                subprocess.run(["truncate", "-s", f"{mib + 26}M", file], check=True)
            serve(name, [file if part == "FILE" else part for part in command])
        # Filled, and then overwritten at random until cleaning has settled.
        for socket, _ in servers.values():
            fio(socket, "write", "1M", 4, mib, 0)
            fio(socket, "randwrite", "4k", 16, mib, 0)
        if args.busy:
            loop = f"while :; do dd if=/dev/zero of={folder}/busy bs=1M count=64 conv=fsync,notrunc 2>/dev/null; done"
            processes.append(subprocess.Popen(["bash", "-c", loop]))
        results = {}
        for _ in range(args.rounds):
            for job, kind, size, depth in JOBS:
                for name, (socket, pid) in servers.items():
                    before = cpu_seconds(pid)
                    side = fio(socket, kind, size, depth, mib, args.seconds)
                    cpu_us = (cpu_seconds(pid) - before) * 1e6 / max(side["total_ios"], 1)
                    rate = side["iops"] if size == "4k" else side["bw_bytes"] / 1e6
                    late_us = side["clat_ns"]["percentile"]["99.000000"] / 1e3
                    results.setdefault((job, name), []).append((rate, late_us, cpu_us))
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait()
        shutil.rmtree(folder)

    load = os.getloadavg()[1]
    print(f"{args.rounds} rounds of {args.seconds} s, medians (smallest to largest), busy disk: {args.busy}, load {load:.1f}\n")
    print("| " + " | ".join(["", *servers]) + " |")
    print("|" + "---|" * (len(servers) + 1))
    for job, _, size, _ in JOBS:
        cells = [f"{job}, {'IOPS' if size == '4k' else 'MB/s'}; p99, us; CPU, us"]
        for name in servers:
            rates, lates, cpus = zip(*results[job, name])
            cells.append(
                f"{statistics.median(rates):,.0f} ({min(rates):,.0f} to {max(rates):,.0f}); "
                f"{statistics.median(lates):,.0f}; {statistics.median(cpus):.1f}"
            )
        print("| " + " | ".join(cells) + " |")


main()
