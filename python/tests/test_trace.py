from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import margay
import numpy as np
import numpy.typing as npt
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from helpers import timeless
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

# What a trace in memory and its file do not share.
OF_THE_FILE = ("source", "trace_xxh3", "trace_format")


def same(row: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in timeless(row).items() if key not in OF_THE_FILE}


def some(requests: int = 3000) -> dict[str, Any]:
    generator = np.random.default_rng(5)
    return {
        "time_us": np.cumsum(generator.integers(0, 1000, requests)).astype(np.uint64),
        "kind": generator.choice(np.array([0, 1, 1, 1, 2], dtype=np.uint8), requests),
        "device": generator.integers(0, 3, requests).astype(np.uint32),
        "offset_bytes": generator.integers(0, 500, requests).astype(np.uint64) * 4096,
        "len_bytes": generator.integers(1, 4, requests).astype(np.uint64) * 4096,
    }


def test_arrays_replay_as_the_file_that_holds_the_same_requests(
    rows_of: Callable[..., list[dict[str, Any]]], tmp_path: Path
) -> None:
    trace = margay.Trace.from_numpy(**some())
    path = tmp_path / "some.mgt"
    assert trace.save(path) == len(trace) == 3000
    row = margay.simulate(trace, repeat=4).row
    assert row["trace_format"] == "memory"
    assert [same(row)] == [same(row) for row in rows_of("replay", path, "--repeat", 4)]
    opened = margay.Trace.open(path)
    assert len(opened) == 3000
    assert [timeless(margay.simulate(opened, repeat=4).row)] == rows_of("replay", path, "--repeat", 4)
    with pytest.raises(margay.UsageError, match="exists"):
        trace.save(path)
    trace.save(path, force=True)
    with pytest.raises(margay.RunError, match="/dev/full"):
        trace.save("/dev/full", force=True)


@pytest.mark.parametrize("dtype", ["u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", ">u4", ">i8"])
def test_whole_numbers_of_any_width_are_the_same_requests(dtype: str) -> None:
    offsets = np.arange(100) * 1
    plain = margay.Trace.from_numpy(offsets.astype(np.uint64), 512)
    assert margay.Trace.from_numpy(offsets.astype(dtype), 512).info()["xxh3"] == plain.info()["xxh3"]
    strided = np.repeat(offsets, 2).astype(dtype)[::2]
    assert margay.Trace.from_numpy(strided, 512).info()["xxh3"] == plain.info()["xxh3"]


def test_an_array_is_not_copied() -> None:
    offsets = np.zeros(1000, dtype=np.uint64)
    trace = margay.Trace.from_numpy(offsets)
    offsets[:] = 4096
    # The documentation asks not to do this: it shows that the memory is the array's.
    assert set(pl.DataFrame(trace)["offset_bytes"]) == {4096}


def test_tables_of_other_libraries_are_traces() -> None:
    columns: dict[str, Any] = some(500)
    plain = margay.Trace.from_numpy(**columns)
    names = np.array(["read", "write", "trim"], dtype=object)
    texts = {**columns, "kind": names[columns["kind"]]}
    frame = pl.DataFrame(texts)
    tables: list[Any] = [
        frame,
        frame.with_columns(pl.col("kind").cast(pl.Categorical)),
        pl.DataFrame(columns),
        pa.table(texts),
        pa.table(texts).cast(frame.to_arrow(compat_level=pl.CompatLevel.oldest()).schema),
        pa.concat_tables([pa.table(texts).slice(0, 200), pa.table(texts).slice(200)]),
        pd.DataFrame(texts),
        duckdb.sql("select * from frame"),
        plain,
    ]
    for table in tables:
        trace = margay.Trace.from_arrow(table)
        assert trace.info()["xxh3"] == plain.info()["xxh3"], type(table)
    alone = margay.Trace.from_arrow(pl.DataFrame({"offset_bytes": [0, 4096]}), len_bytes=8192)
    assert alone.info()["write_bytes"] == 2 * 8192


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        ({"offset_bytes": np.zeros(3)}, "offset_bytes: expected an array of whole numbers, not of dtype float64"),
        ({"offset_bytes": np.zeros((3, 3), dtype=np.int64)}, r"one dimension, not of shape \(3, 3\)"),
        ({"offset_bytes": np.array([0, -4096])}, "row 1: offset_bytes: -4096 is negative"),
        ({"offset_bytes": np.array([0, 1]), "len_bytes": np.array([-1, 1])}, "row 0: len_bytes: -1 is negative"),
        ({"offset_bytes": np.array([0, 1]), "len_bytes": np.array([1])}, "has 1 elements, and offset_bytes has 2"),
        ({"offset_bytes": np.array([0, 1]), "len_bytes": -1}, "len_bytes = -1: expected a number from 0"),
        ({"offset_bytes": np.array([0, 1]), "kind": np.array([1, 9])}, "row 1: kind: 9 is none"),
        ({"offset_bytes": np.array([0, 1]), "kind": "wrote"}, "'wrote' is none; expected read, write"),
        ({"offset_bytes": np.array(["a", "b"])}, "not of dtype <U1"),
        ({"offset_bytes": np.array([2**64 - 1], dtype=np.uint64)}, "row 0: the request ends past"),
        ({"offset_bytes": np.array([0]), "device": np.array([2**40])}, "row 0: device: 1099511627776 is over"),
        ({"offset_bytes": np.array([0]), "stream": np.array([256])}, "row 0: stream: 256 is over 255"),
        ({"offset_bytes": 5}, "expected an array"),
        (
            {"offset_bytes": np.array([0]), "time_us": np.array([np.datetime64("2020-01-01")])},
            "not of dtype datetime64",
        ),
    ],
)
def test_arrays_that_are_no_requests_are_refused_with_the_row(columns: dict[str, Any], text: str) -> None:
    with pytest.raises(margay.UsageError, match=text):
        margay.Trace.from_numpy(**columns)


def test_tables_that_are_no_requests_are_refused() -> None:
    for columns, text in (
        ({"offset": [0]}, "there is no column 'offset_bytes'; the columns are offset"),
        ({"offset_bytes": [0, None]}, "offset_bytes: 1 values are missing"),
        ({"offset_bytes": [0.5]}, "offset_bytes: expected whole numbers, not Float64"),
        ({"offset_bytes": [0], "kind": ["wrote"]}, "kind: 'wrote' is none"),
        ({"offset_bytes": [0], "kind": pl.Series([None], dtype=pl.String)}, "kind: a value is missing"),
    ):
        with pytest.raises(margay.UsageError, match=text):
            margay.Trace.from_arrow(pl.DataFrame(columns))
    with pytest.raises(TypeError, match="expected a table"):
        margay.Trace.from_arrow([1, 2])  # type: ignore[arg-type]


def test_a_trace_without_requests_or_writes_is_an_error_of_its_run() -> None:
    for trace in (
        margay.Trace.from_numpy(np.zeros(0, dtype=np.int64)),
        margay.Trace.from_numpy(np.zeros(9, dtype=int), kind="read"),
    ):
        with pytest.raises(margay.Error, match=r"no request|no write|empty"):
            margay.simulate(trace)


def test_parts_of_traces_are_traces(tmp_path: Path) -> None:
    columns: dict[str, Any] = some()
    whole = margay.Trace.from_numpy(**columns)
    path = tmp_path / "whole.mgt"
    whole.save(path)
    part = margay.Trace.from_numpy(**{name: column[100:-50] for name, column in columns.items()})
    assert len(part) == 2850
    assert whole[100:-50].info()["xxh3"] == part.info()["xxh3"]
    assert same(margay.simulate(margay.Trace.open(path)[100:-50]).row) == same(margay.simulate(part).row)
    assert len(whole[5:2]) == 0
    assert len(whole[10_000:]) == 0
    with pytest.raises(IndexError, match="no step"):
        whole[::2]
    with pytest.raises(TypeError, match="expected a slice"):
        whole[3]  # type: ignore[index]


def test_a_trace_goes_to_other_processes(tmp_path: Path) -> None:
    columns = some(400)
    streams = (np.arange(400) % 3).astype(np.uint8)
    trace = margay.Trace.from_numpy(**columns, stream=streams, name="mine")
    again = pickle.loads(pickle.dumps(trace))
    assert (again.name, again.info()) == ("mine", trace.info())
    path = tmp_path / "some.csv"
    trace.save(path, format="csv")
    opened = margay.Trace.open(path, trace_device=["1"])
    there = pickle.loads(pickle.dumps(opened))
    assert there.info() == opened.info()
    assert same(margay.simulate(there).row) == same(margay.simulate(opened).row)


def test_statistics_are_the_command_s_and_those_of_each_volume(run: Any, tmp_path: Path) -> None:
    import json

    trace = margay.Trace.from_numpy(**some())
    path = tmp_path / "some.mgt"
    trace.save(path)
    said = json.loads(run("trace", "info", "--json", "--page-bytes", 8192, path).stdout)
    assert margay.Trace.open(path).info(page_bytes=8192) == said
    volumes = trace.volumes()
    assert volumes["device"].tolist() == [0, 1, 2]
    assert volumes["writes"].sum() == said["counts"]["writes"]
    with pytest.raises(margay.UsageError, match="expected at least 1"):
        trace.info(page_bytes=0)


def test_a_generated_trace_is_the_file_that_the_command_generates(
    run: Any, rows_of: Callable[..., list[dict[str, Any]]], tmp_path: Path
) -> None:
    path = tmp_path / "zipf.mgt"
    run("generate", "zipf:0.99,writes=20000", path, "--pages", 5000, "--seed", 3)
    trace = margay.Trace.generate("zipf:0.99,writes=20000", pages=5000, seed=3)
    assert len(trace) == 20000
    assert [same(margay.simulate(trace).row)] == [same(row) for row in rows_of("replay", path)]
    mine = tmp_path / "mine.mgt"
    trace.save(mine)
    assert mine.read_bytes() == path.read_bytes()
    with pytest.raises(margay.UsageError, match="has no end"):
        margay.Trace.generate("random")


def test_missing_files_and_unknown_formats_are_errors_at_once(tmp_path: Path) -> None:
    with pytest.raises(margay.InputError, match="missing"):
        margay.Trace.open(tmp_path / "missing.mgt")
    with pytest.raises(margay.UsageError, match="unknown"):
        margay.Trace.open(tmp_path / "missing.mgt", trace_format="nonsense")
    (tmp_path / "empty").touch()
    with pytest.raises(margay.InputError):
        margay.Trace.open(tmp_path / "empty")


def test_the_options_of_reading_stay_with_the_trace(
    rows_of: Callable[..., list[dict[str, Any]]], tmp_path: Path
) -> None:
    path = tmp_path / "some.csv"
    margay.Trace.from_numpy(**some()).save(path, format="csv")
    trace = margay.Trace.open(path, trace_device=["1"])
    assert len(trace) < 3000
    assert [timeless(margay.simulate(trace).row)] == rows_of("replay", path, "--trace-device", "1")
    with pytest.raises(margay.UsageError, match="share the options"):
        margay.sweep([trace, margay.Trace.open(path)])


def test_a_sweep_crosses_traces_in_memory_with_settings() -> None:
    traces = [margay.Trace.generate(f"hot-cold:{hot}/10,writes=5000", pages=1000) for hot in (80, 90)]
    swept = margay.sweep(traces, selection=["greedy", "fifo"], seeds=1)
    frame = pl.DataFrame(swept.table)
    assert frame.height == 4
    assert set(frame["source"]) == {"hot-cold:80/10,writes=5000", "hot-cold:90/10,writes=5000"}


requests = arrays.arrays(np.int64, st.integers(1, 60), elements=st.integers(-2, 2**20))


@settings(max_examples=60, deadline=None)
@given(
    offsets=requests,
    length=st.integers(-1, 2**33),
    kind=arrays.arrays(np.int8, st.integers(1, 60), elements=st.integers(-1, 4)),
)
def test_any_arrays_are_a_trace_or_an_error_that_names_the_row(
    offsets: npt.NDArray[np.int64], length: int, kind: npt.NDArray[np.int8]
) -> None:
    try:
        trace = margay.Trace.from_numpy(offsets, length, kind=kind)
    except margay.UsageError as error:
        shapes_differ = len(offsets) != len(kind)
        assert shapes_differ or (offsets < 0).any() or length < 0 or (kind < 0).any() or (kind > 3).any()
        assert shapes_differ or length < 0 or str(error).startswith("row ")
        return
    assert len(trace) == len(offsets)
    try:
        info = trace.info()
    except margay.InputError as error:
        assert length > 2**32 or length == 0 or str(error)
        return
    assert info["counts"]["reads"] == (kind == 0).sum()


@settings(max_examples=25, deadline=None)
@given(
    offsets=arrays.arrays(np.uint32, st.integers(200, 400), elements=st.integers(0, 60)),
    selection=st.sampled_from([entry["name"] for entry in margay.policies("selection")]),
)
def test_every_run_adds_up(offsets: npt.NDArray[np.uint32], selection: str) -> None:
    trace = margay.Trace.from_numpy(offsets.astype(np.uint64) * 4096)
    row = margay.simulate(trace, selection=selection, repeat=20, pages_per_segment=8).row
    assert row["host_writes"] == 20 * len(offsets)
    assert row["wa"] == (row["host_writes"] + row["copies"] + row["metadata_pages"]) / row["host_writes"]
    assert row["wa"] >= 1


def test_lists_are_arrays() -> None:
    offsets = [0, 4096, 8192, 4096]
    listed = margay.Trace.from_numpy(offsets, [4096, 512, 4096, 4096], time_us=(0, 1, 2, 3))
    array = margay.Trace.from_numpy(np.array(offsets), np.array([4096, 512, 4096, 4096]), time_us=np.arange(4))
    assert listed.info() == array.info()
    wrong: list[tuple[Any, str]] = [
        ([0, 0.5], "dtype float64"),
        (["0"], "dtype <U1"),
        ([2**64], "dtype object"),
        ([[0], [0, 1]], "offset_bytes: expected an array"),
        ([[0]], "shape"),
        ([-1], "row 0"),
        (7, "offset_bytes: expected an array"),
    ]
    for given_, text in wrong:
        with pytest.raises(margay.UsageError, match=text):
            margay.Trace.from_numpy(given_)


def test_arrays_that_were_changed_are_never_sent_in_part() -> None:
    kinds = np.ones(1000, dtype=np.uint8)
    trace = margay.Trace.from_numpy(np.arange(1000) * 4096, kind=kinds)
    assert len(pickle.loads(pickle.dumps(trace))) == 1000
    kinds[500:] = 9
    with pytest.raises(margay.UsageError, match="row 500: kind: 9"):
        pickle.dumps(trace)
    with pytest.raises(margay.UsageError, match="kind: 9"):
        trace[400:600]
