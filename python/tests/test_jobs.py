"""Arrays of jobs, and traces of many volumes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import margay
import numpy as np
import pytest
from margay import _margay
from margay.policy import Segments

GRID: dict[str, Any] = {
    "device": "intel-series2plus-24mb",
    "selection": ["greedy", "cat"],
    "over_provisioning": "0.1..0.3:0.1",
    "seeds": 2,
}
SOURCE = "hot-cold:90/10,writes=20000"


def test_tasks_give_the_rows_of_the_sweep_and_a_killed_one_goes_on(tmp_path: Path) -> None:
    sweep = margay.SweepJobs(SOURCE, tasks=5, folder=tmp_path / "parts", **GRID)
    assert sorted(at for task in range(5) for at in sweep.points(task)) == list(range(12))
    for task in range(4):
        assert sweep.task(task).name == f"part-{task}.points"
    with pytest.raises(margay.RunError, match="1 of 5 tasks are not finished: 4"):
        sweep.collect()
    # A job that is killed leaves no part.
    script = f"""
import margay
print("started", flush=True)
margay.SweepJobs("hot-cold:90/10,writes=500000", tasks=2, folder={str(tmp_path / "killed")!r}, **{GRID!r}).task(0)
"""
    job = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
    begun = tmp_path / "killed" / "part-0.begun"
    until = time.monotonic() + 120
    while not (begun.exists() and begun.read_bytes().count(b"\n") > 1):
        assert time.monotonic() < until
        assert job.poll() is None, "the job was over before it was killed"
        time.sleep(0.02)
    job.send_signal(signal.SIGKILL)
    job.wait()
    assert not (tmp_path / "killed" / "part-0.points").exists()
    kept = begun.read_bytes().count(b"\n")
    small = margay.SweepJobs("hot-cold:90/10,writes=500000", tasks=2, folder=tmp_path / "killed", **GRID)
    part = small.task(0)
    assert part.read_bytes().count(b"\n") == 1 + len(small.points(0)) >= kept
    # The last task, and all together.
    sweep.task(4)
    whole = sweep.collect(finished=tmp_path / "all.points")
    local = margay.sweep(SOURCE, **GRID)
    assert whole.table.rows() == local.table.rows()
    # The sweep itself goes on with what the jobs have done.
    size = (tmp_path / "all.points").stat().st_size
    assert margay.sweep(SOURCE, finished=tmp_path / "all.points", **GRID).table.rows() == local.table.rows()
    assert (tmp_path / "all.points").stat().st_size == size
    # What is done is not done again, which would put another file in its place.
    inode = (tmp_path / "parts" / "part-4.points").stat().st_ino
    sweep.task(4)
    assert (tmp_path / "parts" / "part-4.points").stat().st_ino == inode


def test_wrong_tasks_are_refused(tmp_path: Path) -> None:
    sweep = margay.SweepJobs("random,writes=2000", tasks=3, folder=tmp_path, **GRID)
    for task in (-1, 3):
        with pytest.raises(margay.UsageError, match="from 0 to 2"):
            sweep.task(task)
    with pytest.raises(margay.UsageError, match="tasks = 0"):
        margay.SweepJobs("random,writes=2000", tasks=0, folder=tmp_path, **GRID)
    (tmp_path / "file").write_text("")
    blocked = margay.SweepJobs("random,writes=2000", tasks=3, folder=tmp_path / "file", **GRID)
    with pytest.raises(margay.RunError, match="file"):
        blocked.task(0)


def test_numbers_of_tasks_may_be_text_and_nothing_else(tmp_path: Path) -> None:
    sweep = margay.SweepJobs("random,writes=2000", tasks="3", folder=tmp_path, **GRID)
    assert sweep.points("1") == sweep.points(1) == range(1, 12, 3)
    wrong: list[Any] = ["", "one", "1.0", 1.0, None, True, [1]]
    for number in wrong:
        with pytest.raises(margay.UsageError, match=r"task = .*: expected a whole number from 0 to 2"):
            sweep.task(number)
        with pytest.raises(margay.UsageError, match=r"tasks = .*: expected a whole number from 1"):
            margay.SweepJobs("random,writes=2000", tasks=number, folder=tmp_path, **GRID)


def test_a_part_that_cannot_be_put_in_its_place_is_an_error_of_the_run(tmp_path: Path) -> None:
    sweep = margay.SweepJobs("random,writes=2000", tasks=12, folder=tmp_path, **GRID)
    (tmp_path / "part-0.points" / "inside").mkdir(parents=True)
    with pytest.raises(margay.RunError, match=r"part-0\.points: cannot be written .*part-0\.begun"):
        sweep.task(0)


def test_parts_are_collected_while_another_process_has_one_open(tmp_path: Path) -> None:
    sweep = margay.SweepJobs("random,writes=2000", tasks=2, folder=tmp_path, **GRID)
    parts = [sweep.task(task) for task in range(2)]
    # As another process would, which waits for nobody.
    held = _margay.Finished(parts[0])
    assert len(sweep.collect().table) == len(sweep.grid)
    assert sweep.task(0) == parts[0]
    with pytest.raises(margay.RunError, match="another sweep is writing it"):
        _margay.Finished(parts[0])
    assert len(held) == 6


def test_rows_of_a_trace_that_has_changed_are_not_taken(tmp_path: Path) -> None:
    trace = tmp_path / "trace.mgt"
    options: dict[str, Any] = {"selection": ["greedy", "cat"], "over_provisioning": 0.2}

    def write(seed: int) -> list[float]:
        pages = np.random.default_rng(seed).integers(0, 2000, 30_000, dtype=np.uint64)
        margay.Trace.from_numpy((pages * pages) % 2000 * 4096).save(trace, force=True)
        return list(margay.sweep(trace, **options).table["wa"])

    def rows() -> list[float]:
        return list(margay.SweepJobs(trace, tasks=2, folder=tmp_path, **options).collect(tmp_path / "all").table["wa"])

    def run() -> None:
        for task in range(2):
            margay.SweepJobs(trace, tasks=2, folder=tmp_path, **options).task(task)

    before = write(1)
    run()
    assert rows() == before
    after = write(2)
    assert after != before
    # What was collected is of the old trace too.
    with pytest.raises(margay.RunError, match="2 of 2 tasks are not finished"):
        rows()
    points = margay.grid(trace, **options)
    assert _margay.Finished(tmp_path / "all").row(points, 0) is None
    # A job that was killed had begun with the old trace.
    (tmp_path / "part-0.points").rename(tmp_path / "part-0.begun")
    run()
    assert rows() == after


def test_a_policy_of_python_is_refused_where_its_rows_could_not_be_collected(tmp_path: Path) -> None:
    def greedy(segments: Segments) -> int:
        candidates = segments.candidates
        return int(candidates[segments.valid[candidates].argmin()])

    with pytest.raises(margay.UsageError, match="python:greedy: a policy of Python cannot be run by an array of jobs"):
        margay.SweepJobs("random", tasks=1, folder=tmp_path, selection=["cat", greedy])
    # Before a cluster is started: there is none at this address.
    with pytest.raises(margay.UsageError, match="python:greedy: a policy of Python cannot be sent to other machines"):
        margay.sweep("random", engine="dask", scheduler="tcp://127.0.0.1:1", selection=greedy)


def volumes(path: Path, count: int) -> None:
    """A trace in the format of MSR of so many volumes, of which each writes some pages again and again."""
    lines: list[str] = []
    for step in range(400):
        for volume in range(count):
            page = (step * 7 + step * step * (volume % 3)) % (40 + volume % 20)
            lines.append(f"{128166372003061629 + 10 * len(lines)},vol,{volume},Write,{page * 4096},4096,3")
    path.write_text("\n".join(lines) + "\n")


def test_hundreds_of_volumes_are_split_once_and_add_up(tmp_path: Path) -> None:
    trace, folder = tmp_path / "all.csv", tmp_path / "volumes"
    volumes(trace, 120)
    parts = margay.split(trace, folder)
    assert len(parts) == len(set(parts)) == 120
    stamps = [Path(part).stat().st_mtime_ns for part in parts]
    swept = margay.sweep_volumes(trace, folder, selection=["greedy", "cat"], pages_per_segment=8, repeat=2)
    assert [Path(part).stat().st_mtime_ns for part in parts] == stamps, "it was split again"
    assert len(swept.table) == 240
    totals = swept.totals()
    assert sorted(total["set.selection"] for total in totals) == ["cat", "greedy"]
    for total in totals:
        rows = [row for row in swept.table.rows() if row["set.selection"] == total["set.selection"]]
        assert total["volumes"] == len(rows) == 120
        assert total["host_writes"] == sum(row["host_writes"] for row in rows) == 120 * 400 * 2
        assert total["wa"] == pytest.approx(sum(row["wa"] * row["host_writes"] for row in rows) / total["host_writes"])
        assert total["wa_max"] == max(row["wa"] for row in rows) >= total["wa"]
    # Another trace in its place is split anew.
    volumes(trace, 3)
    assert len(margay.split(trace, folder)) == 3
    with pytest.raises(margay.InputError, match=r"none\.csv"):
        margay.split(tmp_path / "none.csv", folder)


def test_volumes_that_are_only_read_are_left_out(tmp_path: Path) -> None:
    trace, folder = tmp_path / "all.csv", tmp_path / "volumes"
    volumes(trace, 3)
    read = [line.replace(",Write,", ",Read,") if ",1," in line else line for line in trace.read_text().splitlines(True)]
    trace.write_text("".join(read))
    assert len(margay.split(trace, folder)) == 3
    swept = margay.sweep_volumes(trace, folder, pages_per_segment=8, repeat=2)
    assert len(swept.table) == 2
    assert len(swept.left_out) == 1
    trace.write_text("".join(line.replace(",Write,", ",Read,") for line in read))
    with pytest.raises(margay.UsageError, match="no volume is written"):
        margay.sweep_volumes(trace, folder)


def test_a_split_that_was_cut_short_leaves_nothing_that_is_taken_for_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small, large, folder = tmp_path / "small.csv", tmp_path / "large.csv", tmp_path / "volumes"
    volumes(small, 3)
    volumes(large, 5)
    parts = margay.split(small, folder)
    # Who may read the parts may read the note.
    assert (folder / "split.json").stat().st_mode == Path(parts[0]).stat().st_mode
    lengths = [len(margay.Trace.open(part)) for part in parts]
    split_trace = _margay.split_trace

    def killed(path: Any, folder: Any) -> Any:
        split_trace(path, folder)
        Path(parts[0]).write_bytes(Path(parts[1]).read_bytes())
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(_margay, "split_trace", killed)
        with pytest.raises(KeyboardInterrupt):
            margay.split(large, folder)
    again = margay.split(small, folder)
    assert [len(margay.Trace.open(part)) for part in again] == lengths
    assert {margay.Trace.open(part).volumes()["name"][0] for part in again} == {"0", "1", "2"}

    def full(_from: object, to: object) -> None:
        raise OSError(28, f"No space left on device: {to}")

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", full)
        with pytest.raises(margay.RunError, match="No space left"):
            margay.split(large, folder)
    assert [name for name in os.listdir(folder) if name.startswith("split")] == []
