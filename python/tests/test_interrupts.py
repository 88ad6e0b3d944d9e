"""Ctrl-C: what it ends, and what it leaves alone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

# What the programs of the tests begin with. `interrupted(f)` calls f, of which "called" is printed while it is at work, and
# tells what came of it; the test sends the signal. `quiet()` waits for the end of what f has left in the background.
COMMON = """
import margay, numpy as np, os, signal, sys, threading, time

SMALL = dict(flash_size="16M", pages_per_segment=64)

def greedy(segments):
    candidates = segments.candidates
    return candidates[segments.valid[candidates].argmin()]

def threads():
    return len(os.listdir("/proc/self/task"))

THREADS = threads()

def quiet():
    until = time.monotonic() + 120
    while threads() > THREADS and time.monotonic() < until:
        time.sleep(0.05)

def ctrl_c(after=0.0):
    def send():
        time.sleep(after)
        os.kill(os.getpid(), signal.SIGINT)
    threading.Thread(target=send, daemon=True).start()

def interrupted(call):
    try:
        call()
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    else:
        print("went on to its end", flush=True)
"""


def said(tmp_path: Path, program: str) -> list[str]:
    """What a program prints, which has to end well."""
    path = tmp_path / "program.py"
    path.write_text(COMMON + program)
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, timeout=300, cwd=tmp_path)
    assert done.returncode == 0, f"{done.returncode}: {done.stdout} {done.stderr}"
    return done.stdout.splitlines()


def test_policies_of_other_calls_go_on(tmp_path: Path) -> None:
    program = """
results, begun = [], threading.Event()
is_over = False

def slow(segments):
    begun.set()
    # The signal reaches a call, and not the time between two.
    while not is_over:
        time.sleep(0.001)
    return greedy(segments)

def other():
    try:
        results.append(margay.simulate("zipf:0.9", selection=slow, device_writes=1, **SMALL).wa > 1)
    except BaseException as error:
        results.append(repr(error))

thread = threading.Thread(target=other)
thread.start()
begun.wait()
ctrl_c(0.3)
interrupted(lambda: margay.simulate("zipf:0.9", device_writes=1e6, **SMALL))
is_over = True
thread.join()
print(results)
"""
    assert said(tmp_path, program) == ["interrupted", "[True]"]


def test_a_run_within_a_policy_ends_too(tmp_path: Path) -> None:
    program = """
def nested(segments):
    ctrl_c(0.3)
    margay.simulate("zipf:0.9", device_writes=1e6, **SMALL)

interrupted(lambda: margay.simulate("zipf:0.9", selection=nested, **SMALL))
quiet()
print(threads() <= THREADS)
"""
    assert said(tmp_path, program) == ["interrupted", "True"]


@pytest.mark.parametrize(
    "policy",
    ["selection=lambda segments: Endless()", "placement=margay.policy.placement(streams=2)(lambda pages: Endless())"],
)
def test_an_answer_that_never_comes_ends(tmp_path: Path, policy: str) -> None:
    program = f"""
class Endless:
    def __index__(self):
        ctrl_c()
        while True:
            time.sleep(0.001)

    def __array__(self, *_args, **_named):
        self.__index__()

interrupted(lambda: margay.simulate("zipf:0.9", device_writes=1, **SMALL, {policy}))
quiet()
print(threads() <= THREADS)
"""
    assert said(tmp_path, program) == ["interrupted", "True"]


def test_a_search_on_a_cluster_ends(tmp_path: Path) -> None:
    program = """
from margay import _margay

def runner(points, kept):
    # As the driver of a cluster, which waits for results.
    ctrl_c()
    try:
        while True:
            time.sleep(0.01)
    finally:
        print("the tasks are cancelled", flush=True)

settings = {"source": "hot-cold:90/10", "device": "spi-nor-16mb"}
interrupted(lambda: _margay.advise(settings, 5.0, 1e9, None, [], _margay.Finished(), 1, runner))
"""
    assert sorted(said(tmp_path, program)) == ["interrupted", "the tasks are cancelled"]


def test_a_trace_is_not_written_after_the_exception(tmp_path: Path) -> None:
    program = """
open("kept.mgt", "w").write("mine")
offsets = np.random.default_rng(1).integers(0, 1 << 40, 8_000_000, dtype=np.uint64) // 4096 * 4096
trace = margay.Trace.from_numpy(offsets)
ctrl_c(0.2)
interrupted(lambda: trace.save("kept.mgt", force=True))
quiet()
print(open("kept.mgt", "rb").read(10))
print(sorted(os.listdir(".")))
"""
    assert said(tmp_path, program) == ["interrupted", "b'mine'", "['kept.mgt', 'program.py']"]


def test_a_stream_of_arrow_without_an_end_ends(tmp_path: Path) -> None:
    program = """
import pyarrow

def batches():
    ctrl_c(0.3)
    while True:
        yield pyarrow.record_batch({"offset_bytes": pyarrow.array([0], pyarrow.uint64())})
        time.sleep(0.001)

schema = pyarrow.schema({"offset_bytes": pyarrow.uint64()})
# With threads of its own, which stay.
margay.Trace.from_arrow(pyarrow.table({"offset_bytes": [0]}))
THREADS = threads()
interrupted(lambda: margay.Trace.from_arrow(pyarrow.RecordBatchReader.from_batches(schema, batches())))
quiet()
print(threads() <= THREADS)
"""
    assert said(tmp_path, program) == ["interrupted", "True"]


@pytest.mark.parametrize("caught", ["except KeyboardInterrupt: pass", "except BaseException: break"])
def test_a_policy_that_goes_on_does_not_abort_the_end_of_the_program(tmp_path: Path, caught: str) -> None:
    program = f"""
def stubborn(segments):
    ctrl_c()
    for _ in range(300):
        try:
            time.sleep(0.01)
        {caught}
    time.sleep(2.5)
    return greedy(segments)

interrupted(lambda: margay.simulate("zipf:0.9", selection=stubborn, device_writes=1e6, **SMALL))
print("end", flush=True)
"""
    assert said(tmp_path, program) == ["interrupted", "end"]
