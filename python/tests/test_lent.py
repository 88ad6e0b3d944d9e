"""Memory that is lent to policies, and objects of the program that change while they are read."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import margay
import numpy as np
import pytest
from margay.policy import Segments

SMALL: dict[str, Any] = {"flash_size": "16M", "pages_per_segment": 64, "device_writes": 2}


def panics_of_rust() -> list[type[BaseException]]:
    """What a panic in Rust is in Python: one class of each package that is loaded and written with PyO3, polars among
    them. Margay's is made when its first exception is looked at, and has no name that tells it from the others."""
    with pytest.raises(margay.UsageError):
        margay.Trace.from_numpy(np.array([[1]]))
    found = [kind for kind in BaseException.__subclasses__() if kind.__name__ == "PanicException"]
    assert found
    return found


def test_a_policy_that_panics_keeps_its_arrays_and_nothing_else() -> None:
    for raised in panics_of_rust():
        keeps_its_arrays(raised)


def keeps_its_arrays(raised: type[BaseException]) -> None:
    kept: list[Any] = []

    def panics(segments: Segments) -> int:
        candidates = segments.candidates
        if segments.total_erases == 20:
            kept.extend([segments, segments.erases, segments.erases.copy(), segments.valid, segments.valid.copy()])
            raise raised("as a panic of the package that was called here")
        return int(candidates[segments.valid[candidates].argmin()])

    with pytest.raises(raised, match="as a panic"):
        margay.simulate("zipf:0.9", selection=panics, **SMALL)
    # The memory of the run would be taken for others now.
    rubbish = [bytes([7]) * 4096 * length for length in range(1, 60)]
    segments, *arrays = kept
    assert repr(segments) == "<margay.policy.Segments of a call that is over>"
    with pytest.raises(RuntimeError):
        len(segments)
    for array, copy in zip(arrays[::2], arrays[1::2], strict=True):
        np.testing.assert_array_equal(array, copy)
    del rubbish


class Growing:
    """A path that changes the dictionary or list which it is in."""

    def __init__(self, holder: Any) -> None:
        self.holder = holder

    def __fspath__(self) -> str:
        for number in range(100):
            if isinstance(self.holder, dict):
                self.holder[f"more {number}"] = "x"
            else:
                self.holder.append("x")
        return "path"


def test_what_changes_while_it_is_read_is_read_as_it_was() -> None:
    fields: dict[str, Any] = margay.Device("spi-nor-16mb").fields
    timing: dict[str, Any] = {}
    timing |= {"given": Growing(timing), **fields["timing"]}
    with pytest.raises(margay.UsageError, match="device"):
        margay.Device.custom(**(fields | {"timing": timing}))
    assert len(timing) > 100
    names: list[Any] = []
    names.append(Growing(names))
    with pytest.raises(margay.UsageError, match="path"):
        margay.sweep("random", selection=names, **SMALL)
    assert len(names) == 101


def test_what_holds_itself_is_refused() -> None:
    names: list[Any] = ["greedy"]
    names.append(names)
    with pytest.raises(margay.UsageError, match=r"selection: .* deep"):
        margay.sweep("random", selection=names, **SMALL)
    fields: dict[str, Any] = {}
    fields["timing"] = fields
    with pytest.raises(margay.UsageError, match=r"timing: .* deep"):
        margay.Device.custom(**fields)


COLLECTED = """
import ctypes, gc, margay

tried = 0

def select(segments):
    global tried
    valid = segments.valid
    lent = valid.base
    while not type(lent).__name__ == "Lent":
        lent = lent.obj if isinstance(lent, memoryview) else lent.base
    # A buffer that only the collection of garbage gives back, which begins with the next object that is made.
    cycle = [memoryview(lent)]
    cycle.append(cycle)
    before = gc.get_threshold()
    gc.set_threshold(1)
    del cycle
    try:
        (ctypes.c_char * 4).from_buffer(lent)
    except (BufferError, TypeError):
        tried += 1
    gc.set_threshold(*before)
    candidates = segments.candidates
    return candidates[valid[candidates].argmin()]

margay.simulate("random", flash_size="16M", pages_per_segment=64, device_writes=0.5, selection=select)
print("tried", tried > 10)
"""


def test_a_buffer_is_refused_while_others_are_given_back(tmp_path: Path) -> None:
    program = tmp_path / "collected.py"
    program.write_text(COLLECTED)
    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, timeout=120)
    assert (done.stdout, done.returncode) == ("tried True\n", 0), done.stderr
