#!/usr/bin/env python3
"""How many committed transactions of SQLite a mounted margay loses when it is killed, by journal mode.

    scripts/journal-modes.py [MARGAY] [KILLS]

For every journal mode and both settings of `synchronous`, with and without `--sync-names`: a program inserts a row at a time
and notes its number outside the mount once the transaction is committed; `margay mount` is killed (SIGKILL) in the middle; the
image is mounted again and the rows are compared with the note. Prints a table for docs/files.md. Exits with 1 if a row was lost
with --sync-names, or a database is damaged.
"""
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time

WRITER = """
import sqlite3, sys
path, mode, level, start, note = sys.argv[1:]
base = sqlite3.connect(path, isolation_level=None)
base.execute(f'pragma journal_mode={mode}')
base.execute(f'pragma synchronous={level}')
number = int(start)
with open(note, 'a') as note:
    while True:
        number += 1
        base.execute('insert into t values (?, hex(randomblob(300)))', (number,))
        note.write(f'{number}\\n')
        note.flush()
"""


class Mount:
    def __init__(self, margay, image, folder, options):
        self.folder = folder
        # The mark of a long commit interval: nothing is written but for what is asked.
        command = [margay, "mount", image, folder, "--no-sync", "--commit", "3600"] + options
        self.process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        deadline = time.time() + 20
        while not os.path.ismount(folder):
            if time.time() > deadline or self.process.poll() is not None:
                sys.exit("the mount does not come up")
            time.sleep(0.01)

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        subprocess.run(["fusermount3", "-uz", self.folder], stderr=subprocess.DEVNULL)

    def unmount(self):
        subprocess.run(["fusermount3", "-u", self.folder], check=True)
        self.process.wait()


def trial(margay, mode, level, options, kills):
    """Commits, commits that were lost, and the number of kills that lost one."""
    work = tempfile.mkdtemp(prefix="margay-journal-")
    image, folder, note = (os.path.join(work, name) for name in ("flash.img", "mnt", "note"))
    path = os.path.join(folder, "t.db")
    os.mkdir(folder)
    subprocess.run([margay, "fs", "format", image, "--size", "32M"], check=True, stdout=subprocess.DEVNULL)
    mount = Mount(margay, image, folder, options)
    with sqlite3.connect(path) as base:
        base.execute("create table t(a integer primary key, b text)")
    base.close()
    os.sync()
    mount.unmount()
    commits, lost, losing = 0, 0, 0
    try:
        for _ in range(kills):
            mount = Mount(margay, image, folder, options)
            with sqlite3.connect(path) as base:
                start = base.execute("select coalesce(max(a), 0) from t").fetchone()[0]
            base.close()
            open(note, "w").close()
            writer = subprocess.Popen(
                [sys.executable, "-c", WRITER, path, mode, level, str(start), note], stderr=subprocess.DEVNULL)
            time.sleep(0.25 + random.random() * 0.25)
            mount.kill()
            writer.kill()
            writer.wait()
            lines = open(note).read().split()
            last = int(lines[-1]) if lines else start
            mount = Mount(margay, image, folder, options)
            with sqlite3.connect(path) as base:
                if base.execute("pragma integrity_check").fetchone()[0] != "ok":
                    sys.exit(f"{mode} {level}: the database is damaged")
                found = base.execute("select coalesce(max(a), 0) from t").fetchone()[0]
            base.close()
            mount.unmount()
            commits += last - start
            lost += max(0, last - found)
            losing += last > found
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return commits, lost, losing


def main():
    margay = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else "target/release/margay")
    kills = int(sys.argv[2]) if len(sys.argv) > 2 else 20
    only = sys.argv[3:]
    random.seed(1)
    failed = False
    print("| journal mode | synchronous | --sync-names | kills | commits | lost commits | kills that lost one |")
    print("|---|---|---|---|---|---|---|")
    for mode in only or ["DELETE", "TRUNCATE", "PERSIST", "WAL"]:
        for level in ["FULL", "EXTRA"]:
            for options in [], ["--sync-names"]:
                commits, lost, losing = trial(margay, mode, level, options, kills)
                print(f"| {mode} | {level} | {'yes' if options else 'no'} | {kills} | {commits} | {lost} | {losing} |", flush=True)
                failed |= commits == 0 or (lost > 0 and options != [])
    sys.exit(failed)


main()
