"""Policies in Python."""

from __future__ import annotations

import gc
import re
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import margay
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from margay import policy
from margay.policy import NEVER, NOWHERE, Kind, Pages, Segments, Sizing, State

# 64 segments of 64 pages of 4 KiB.
SMALL: dict[str, Any] = {"flash_size": "16M", "pages_per_segment": 64, "device_writes": 2}
WALL_TIMES = {"wall_s", "writes_per_s"}
SOURCES = ["zipf:0.9", "hot-cold:90/10", "random,trims=0.1,reads=0.1"]
Array = np.ndarray[Any, np.dtype[Any]]


def run(source: str = "zipf:0.9", **options: Any) -> dict[str, Any]:
    return dict(margay.simulate(source, **{**SMALL, **options}).row)


def same_of(row: dict[str, Any]) -> dict[str, Any]:
    """What has to be equal. Theory is known for policies of the tables alone."""
    return {
        key: row[key] for key in row if key not in WALL_TIMES | {"selection", "placement", "set.selection", "theory_wa"}
    }


def greedy(segments: Segments) -> int:
    candidates = segments.candidates
    return int(candidates[segments.valid[candidates].argmin()])


def fifo(segments: Segments) -> np.intp:
    candidates = segments.candidates
    first: np.intp = candidates[segments.opened_sequence[candidates].argmin()]
    return first


class Dac:
    """The built-in `dac` with its usual parameters: batches of one page see what it sees."""

    streams = 4
    batch = 1

    def __init__(self, sizing: Sizing) -> None:
        self.threshold = sizing.exported_pages // 2

    def place(self, pages: Pages) -> Array:
        stream = np.where(pages.stream < self.streams, pages.stream, 0).astype(np.int64)
        is_young = pages.segment_age < self.threshold
        up = np.minimum(stream + is_young, self.streams - 1)
        down = np.where(is_young, stream, np.maximum(stream - 1, 0))
        return np.where(pages.kind == Kind.COPY, down, np.where(pages.kind == Kind.NEW, 0, up))


def apart(pages: Pages) -> Array:
    """Copies apart from host writes, as `sepgc`."""
    return np.equal(pages.kind, Kind.COPY)


# Equal runs.


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("more", [{}, {"placement": "dac"}, {"max_pages_per_write": 12}, {"separate_read_only": True}])
def test_greedy_in_python_gives_the_run_of_the_built_in_one(source: str, more: dict[str, Any]) -> None:
    for seed in (1, 2, 3):
        wanted = run(source, seed=seed, selection="greedy", **more)
        got = run(source, seed=seed, selection=greedy, **more)
        assert wanted["erases"] > 50
        assert same_of(got) == same_of(wanted)
        assert got["selection"] == "python:greedy"


def test_fifo_in_python_gives_the_run_of_the_built_in_one() -> None:
    assert same_of(run(selection=fifo)) == same_of(run(selection="fifo"))


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("more", [{}, {"max_pages_per_write": 12}, {"selection": greedy}])
def test_dac_in_python_with_batches_of_one_page_gives_the_run_of_the_built_in_one(
    source: str, more: dict[str, Any]
) -> None:
    got = run(source, placement=Dac, **more)
    assert same_of(got) == same_of(run(source, placement="dac", **{**more, "selection": "greedy"}))
    assert got["placement"] == "python:Dac"


@pytest.mark.parametrize("batch", [1, 7, 256, 100_000])
def test_copies_apart_give_the_run_of_sepgc_whatever_the_batch(batch: int) -> None:
    placement = policy.placement(streams=2, batch=batch, opened_at_start=2)(lambda pages: apart(pages))
    assert same_of(run(placement=placement)) == same_of(run(placement="sepgc"))


# What policies are shown.


def test_a_class_is_made_anew_for_each_run_with_the_size_of_the_device() -> None:
    made: list[Sizing] = []

    @policy.selection(name="mine, <of> 2")
    class Mine:
        def __init__(self, sizing: Sizing) -> None:
            made.append(sizing)

        def select(self, segments: Segments) -> int:
            assert len(segments) == made[-1].segments
            return greedy(segments)

    rows = [run(selection=Mine, seed=seed) for seed in (5, 6)]
    assert made == [Sizing(64, 64, rows[0]["exported_pages"], 5), Sizing(64, 64, rows[0]["exported_pages"], 6)]
    assert rows[0]["selection"] == "python:mine___of__2"
    assert same_of(run(selection=Mine(made[0]), seed=5)) == same_of(rows[0])


def test_a_selection_sees_the_account_of_the_engine() -> None:
    seen: list[int] = []

    def looking(segments: Segments) -> int:
        state, valid = segments.state, segments.valid
        assert [array.dtype.name for array in (state, valid, segments.opened_us)] == ["uint8", "uint32", "uint64"]
        assert {array.shape for array in (state, valid, segments.erases, segments.stream)} == {(len(segments),)}
        is_candidate = (state == State.SEALED) & (valid < segments.data_pages)
        assert (segments.candidates == np.flatnonzero(is_candidate)).all()
        assert segments.erases.sum() == segments.total_erases == (seen[-1] if seen else 0)
        sealed = state == State.SEALED
        assert (segments.opened_writes[sealed] <= segments.sealed_writes[sealed]).all()
        assert (segments.sealed_writes <= segments.now_writes).all()
        assert (valid[state == State.FREE] == 0).all()
        assert segments.total_valid <= valid.sum()
        assert "candidates" in repr(segments)
        seen.append(segments.total_erases + 1)
        return greedy(segments)

    assert same_of(run(selection=looking)) == same_of(run(selection="greedy"))
    assert len(seen) > 100


def test_times_of_invalidation_are_shown_to_those_who_ask() -> None:
    @policy.selection(needs_invalidations=True)
    def asking(segments: Segments) -> int:
        assert segments.invalidated_sequence[segments.candidates].all()
        assert (segments.invalidated_writes <= segments.now_writes).all()
        assert segments.invalidated_us.shape == (len(segments),)
        return greedy(segments)

    assert same_of(run(selection=asking)) == same_of(run(selection="greedy"))
    with pytest.raises(AttributeError, match="needs_invalidations"):
        run(selection=lambda segments: segments.invalidated_us.argmin())


def test_host_writes_come_in_batches_and_the_pages_of_a_victim_together() -> None:
    batches: list[Pages] = []

    @policy.placement(streams=2, batch=100)
    def place(pages: Pages) -> Array:
        batches.append(pages)
        return apart(pages)

    row = run("zipf:0.9,trims=0.1", placement=place)
    copies = [pages for pages in batches if (pages.kind == Kind.COPY).any()]
    writes = [pages for pages in batches if not (pages.kind == Kind.COPY).any()]
    # All that was kept is as it was, long after the run.
    assert all((pages.kind == Kind.COPY).all() for pages in copies)
    assert sum(map(len, copies)) == row["copies"]
    assert sum(map(len, writes)) == row["host_writes"] + row["filled_pages"]
    assert sum(len(pages) != 100 for pages in writes) <= 2
    for pages in writes:
        is_new = pages.kind == Kind.NEW
        assert ((pages.age == NEVER) == is_new).all()
        assert ((pages.stream == NOWHERE) == is_new).all()
        assert (pages.age[~is_new] > 0).all()


# What policies keep.


def test_arrays_that_a_selection_keeps_stay_as_they_were() -> None:
    kept: list[tuple[Array, Array, Array, memoryview, Array, Segments]] = []

    def keeping(segments: Segments) -> int:
        valid, candidates = segments.valid, segments.candidates
        if len(kept) % 2:
            valid = segments.valid
        erases = memoryview(segments.erases)  # type: ignore[arg-type]
        kept.append((valid, valid.copy(), valid[::3], erases, candidates, segments))
        return greedy(segments)

    assert same_of(run(selection=keeping)) == same_of(run(selection="greedy"))
    gc.collect()
    run(selection="greedy")
    assert len(kept) > 100
    for valid, copy, part, erases, candidates, segments in kept:
        assert (valid == copy).all()
        assert (part == copy[::3]).all()
        assert len(erases) == 64
        assert (copy[candidates] < 64).all()
        with pytest.raises(RuntimeError, match="during the call"):
            _ = segments.valid
        assert "over" in repr(segments)


def test_arrays_cannot_be_written_to() -> None:
    def writing(segments: Segments) -> int:
        for array in (segments.valid, segments.candidates, segments.opened_us):
            with pytest.raises(ValueError, match="read-only"):
                array[0] = 1
            with pytest.raises(ValueError, match="WRITEABLE"):
                array.setflags(write=True)
        return greedy(segments)

    assert same_of(run(selection=writing)) == same_of(run(selection="greedy"))


def test_memory_lent_to_a_call_is_lent_no_more_after_it() -> None:
    lent: list[Any] = []

    def peeking(segments: Segments) -> int:
        lent.append(segments.valid.base.obj)  # type: ignore[union-attr]
        return greedy(segments)

    run(selection=peeking)
    with pytest.raises(BufferError, match="over"):
        memoryview(lent[0])


# What goes wrong.


class Mistake(Exception):
    pass


def failing(after: int) -> Callable[[Segments], int]:
    calls = 0

    def select(segments: Segments) -> int:
        nonlocal calls
        calls += 1
        if calls > after:
            raise Mistake("after all")
        return greedy(segments)

    return select


@pytest.mark.parametrize("after", [0, 50])
@pytest.mark.parametrize("paced", [None, 12])
def test_what_a_selection_raises_comes_out_with_its_traceback(after: int, paced: int | None) -> None:
    with pytest.raises(Mistake, match="after all") as raised:
        run(selection=failing(after), max_pages_per_write=paced)
    names = [frame.name for frame in traceback.extract_tb(raised.value.__traceback__)]
    assert names[-1] == "select"
    assert "run" in names


def test_what_a_placement_raises_comes_out_with_its_traceback() -> None:
    @policy.placement(streams=2)
    def place(pages: Pages) -> Array:
        if (pages.kind == Kind.COPY).any():
            raise Mistake("no copies")
        return apart(pages)

    with pytest.raises(Mistake, match="no copies") as raised:
        run(placement=place)
    assert [frame.name for frame in traceback.extract_tb(raised.value.__traceback__)][-1] == "place"


def test_what_a_class_raises_when_it_is_made_comes_out() -> None:
    class Broken:
        streams = 2

        def __init__(self, _: Sizing) -> None:
            raise Mistake("not today")

        def select(self, segments: Segments) -> int:
            return greedy(segments)

        def place(self, pages: Pages) -> Array:
            return apart(pages)

    with pytest.raises(Mistake):
        run(selection=Broken)
    with pytest.raises(Mistake):
        run(placement=Broken)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (lambda segments: int(np.flatnonzero(segments.state == State.FREE)[0]), "is free"),
        (lambda segments: int(np.flatnonzero(segments.state == State.OPEN)[0]), "is open"),
        (lambda segments: len(segments), "answered 64, .*the segments 0 to 63"),
        (lambda segments: -1, "the segments 0 to 63"),
        (lambda segments: 2**80, "the segments 0 to 63"),
        (lambda segments: float("nan"), "answered nan, .*float is no whole number"),
        (lambda segments: 3.0, "no whole number"),
        (lambda segments: None, "answered None"),
        (lambda segments: True, "bool is no whole number"),
        (lambda segments: "3", "str is no whole number"),
        (lambda segments: segments.candidates, "ndarray is no whole number"),
        (lambda segments: segments.candidates[:1], "ndarray is no whole number"),
        (lambda segments: segments, "answered <margay.policy.Segments"),
    ],
)
def test_a_selection_that_answers_nonsense_is_told_what_is_allowed(answer: Callable[[Any], Any], said: str) -> None:
    with pytest.raises(margay.PolicyError, match=said) as raised:
        run(selection=answer)
    assert re.search(r"cleaning number 1 after \d+ host writes", str(raised.value))
    assert re.search(r"allowed is the number of one of the \d+ candidates", str(raised.value))
    assert isinstance(raised.value, margay.RunError)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (lambda pages: 0, r"its shape is \(\)"),
        (lambda pages: np.zeros(len(pages)), "its elements are float64"),
        (lambda pages: np.full(len(pages), np.nan), "its elements are float64"),
        (lambda pages: np.zeros(len(pages) + 1, int), r"its shape is \(257,\)"),
        (lambda pages: np.zeros((len(pages), 1), int), r"its shape is \(256, 1\)"),
        (lambda pages: np.arange(len(pages)), "page 2 of the batch would go to stream 2"),
        (lambda pages: np.full(len(pages), -1, np.int8), "page 0 of the batch would go to stream -1"),
        (lambda pages: np.full(len(pages), 2**64 - 1, np.uint64), "stream 18446744073709551615"),
        (lambda pages: None, "its elements are object"),
        (lambda pages: [[0], [0, 1]], "it is no array"),
        (lambda pages: "hot", "its elements are <U3"),
    ],
)
def test_a_placement_that_answers_nonsense_is_told_what_is_allowed(answer: Callable[[Any], Any], said: str) -> None:
    with pytest.raises(margay.PolicyError, match=said) as raised:
        run(placement=policy.placement(streams=2)(answer))
    assert "allowed is an array of 256 whole numbers, the stream of each page, from 0 to 1" in str(raised.value)


@pytest.mark.parametrize(
    ("what", "policy_", "said"),
    [
        ("selection", 17, "selection = 17: expected a name, a function, a class or an object"),
        ("selection", object(), "the method 'select'"),
        ("placement", apart, "does not say how many streams"),
        ("placement", policy.placement(streams=0)(lambda pages: apart(pages)), "streams = 0: expected a whole number"),
        ("placement", policy.placement(streams=65)(lambda pages: apart(pages)), "from 1 to 64"),
        ("placement", policy.placement(streams=2, batch=0)(lambda pages: apart(pages)), "batch = 0"),
        ("placement", policy.placement(streams=2, opened_at_start=3)(lambda pages: apart(pages)), "from 0 to 2"),
        ("leveling", greedy, "leveling"),
    ],
)
def test_what_is_no_policy_is_refused_before_the_run(what: str, policy_: Any, said: str) -> None:
    with pytest.raises(margay.UsageError, match=re.escape(said)):
        run(**{what: policy_})


def test_more_streams_than_the_device_has_room_for_are_refused() -> None:
    with pytest.raises(margay.UsageError, match=r"too (few|full)|could never be cleaned"):
        run(placement=policy.placement(streams=63)(lambda pages: apart(pages)))


SLOW = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.binary(max_size=5)
    | st.complex_numbers()
)
ANY_ARRAY = npst.arrays(
    dtype=st.one_of(npst.scalar_dtypes()), shape=npst.array_shapes(min_dims=0, max_dims=2, min_side=0, max_side=64)
)


@SLOW
@given(answer=SCALARS | ANY_ARRAY | st.lists(SCALARS, max_size=3), after=st.integers(0, 30))
def test_whatever_a_selection_answers_is_a_victim_or_an_error(answer: Any, after: int) -> None:
    calls = 0

    def select(segments: Segments) -> Any:
        nonlocal calls
        calls += 1
        return greedy(segments) if calls <= after else answer

    # That it is a candidate once does not help: soon it is none.
    with pytest.raises(margay.PolicyError):
        run(selection=select)
    assert calls > after


@SLOW
@given(
    answer=SCALARS
    | ANY_ARRAY
    | npst.arrays(dtype=st.one_of(npst.scalar_dtypes()), shape=64)
    | npst.arrays(dtype=npst.integer_dtypes(), shape=64, elements=st.integers(0, 2)),
    streams=st.integers(1, 3),
)
def test_whatever_a_placement_answers_is_streams_or_an_error(answer: Any, streams: int) -> None:
    @policy.placement(streams=streams, batch=64)
    def place(pages: Pages) -> Any:
        return answer if len(pages) == 64 else np.zeros(len(pages), np.uint8)

    array = np.asarray(answer)
    is_right = array.shape == (64,) and array.dtype.kind in "iub" and array.min() >= 0 and array.max() < streams
    if is_right:
        assert run(placement=place)["erases"] > 0
    else:
        with pytest.raises(margay.PolicyError):
            run(placement=place)


# Other threads, and Ctrl-C.


def test_other_threads_run_between_the_calls() -> None:
    counted = 0
    is_done = threading.Event()

    def count() -> None:
        nonlocal counted
        while not is_done.is_set():
            counted += 1
            time.sleep(0)

    thread = threading.Thread(target=count)
    thread.start()
    try:
        run(selection=greedy, device_writes=20)
    finally:
        is_done.set()
        thread.join()
    assert counted > 10


def test_a_policy_may_run_a_simulation_of_its_own() -> None:
    inner: list[dict[str, Any]] = []

    def nested(segments: Segments) -> int:
        if not inner:
            inner.append(run(selection=greedy))
        return greedy(segments)

    assert same_of(run(selection=nested)) == same_of(inner[0])


ENDLESS = """
import margay, sys, time
from margay import policy

def endless(segments):
    print("called", flush=True)
    while True:
        time.sleep(0) if sys.argv[1] == "sleep" else None

def greedy(segments):
    candidates = segments.candidates
    if segments.total_erases == 100:
        print("called", flush=True)
    return candidates[segments.valid[candidates].argmin()]

selection = greedy if sys.argv[1] == "run" else endless
try:
    margay.simulate("random", flash_size="64M", pages_per_segment=64, device_writes=1e6, selection=selection)
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


@pytest.mark.parametrize("what", ["spin", "sleep", "run"])
def test_ctrl_c_ends_a_run_and_a_policy_that_does_not_end(what: str, tmp_path: Path) -> None:
    program = tmp_path / "endless.py"
    program.write_text(ENDLESS)
    child = subprocess.Popen([sys.executable, str(program), what], stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "called\n"
        child.send_signal(signal.SIGINT)
        said, _ = child.communicate(timeout=60)
    finally:
        child.kill()
    assert said == "interrupted\n"
    assert child.returncode == 0


# Comparisons and sweeps.


def test_a_comparison_takes_policies_of_python_beside_those_of_the_tables() -> None:
    results = margay.compare("zipf:0.9", selection=["greedy", greedy, fifo], placement=["dac", Dac], seeds=2, **SMALL)
    rows = [dict(result.row) for result in results]
    assert len(rows) == 3 * 2 * 2
    of_pair: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in rows:
        of_pair.setdefault((row["selection"], row["placement"].split(":regions")[0]), []).append(same_of(row))
    assert of_pair["greedy", "dac"] == of_pair["python:greedy", "dac"] == of_pair["python:greedy", "python:Dac"]
    assert of_pair["greedy", "dac"] != of_pair["python:fifo", "dac"]
    with pytest.raises(Mistake):
        margay.compare("zipf:0.9", selection=["greedy", failing(20)], placement="m1", seeds=2, **SMALL)


def test_a_sweep_takes_policies_of_python_and_never_trusts_their_rows_of_earlier_calls(tmp_path: Path) -> None:
    calls = 0

    def counting(segments: Segments) -> int:
        nonlocal calls
        calls += 1
        return greedy(segments)

    options: dict[str, Any] = {**SMALL, "finished": tmp_path / "finished.jsonl"}
    for _ in range(2):
        before = calls
        swept = margay.sweep("zipf:0.9", selection=["greedy", counting], seeds=1, **options)
        rows = swept.table.rows()
        assert [row["selection"] for row in rows] == ["greedy", "python:counting"]
        assert same_of(rows[0]) == same_of(rows[1])
        assert calls > before
    with pytest.raises(Mistake):
        margay.sweep("zipf:0.9", selection=["greedy", failing(20)], seeds=1, **SMALL)
