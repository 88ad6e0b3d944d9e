"""Sweeps as arrays of jobs, for batch systems without a scheduler of Dask; and traces of many volumes."""

from __future__ import annotations

import json
import operator
import os
import uuid
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from margay import _margay, files
from margay._run import Sweep, grid, sweep
from margay.errors import InputError, RunError, UsageError

if TYPE_CHECKING:
    from typing import Unpack

    from margay._margay import Table
    from margay._options import GridOptions, Source


class SweepJobs:
    """A sweep in so many tasks, each of which a job runs by its number.

    The jobs and :meth:`collect` are given the same arguments. ``folder`` is one that all of them see: task ``i`` writes
    ``part-i.points`` there, under this name only when it is whole, and is not run again while it is there.

        >>> sweep = margay.SweepJobs("random", over_provisioning="0.1..0.3:0.1", tasks=10, folder="parts")  # doctest: +SKIP
        >>> sweep.task(int(os.environ["SLURM_ARRAY_TASK_ID"]))  # doctest: +SKIP
        >>> sweep.collect().table  # doctest: +SKIP

    Raises as :func:`margay.sweep` does.
    """

    def __init__(
        self,
        source: Source | Sequence[Source],
        *,
        tasks: int | str,
        folder: str | PathLike[str],
        seeds: int | None = None,
        **options: Unpack[GridOptions],
    ) -> None:
        """The same arguments as those of :func:`margay.sweep`, the number of tasks, and the folder for their parts."""
        self.tasks = _whole(tasks)
        if self.tasks < 1:
            raise UsageError(f"tasks = {tasks!r}: expected a whole number from 1")
        self.grid = grid(files.fetched(source), seeds=seeds, **options)
        if own := self.grid.own_policies():
            raise UsageError(
                f"{own[0]}: a policy of Python cannot be run by an array of jobs, because nobody knows whether its code is the "
                "same in each; run it with margay.sweep on this machine"
            )
        self.folder = Path(folder)

    def _part(self, task: int) -> Path:
        return self.folder / f"part-{task}.points"

    def points(self, task: int | str) -> range:
        """The numbers of the points of a task: every ``tasks``-th, so that tasks take about as long as each other."""
        number = _whole(task)
        if not 0 <= number < self.tasks:
            raise UsageError(f"task = {task!r}: expected a whole number from 0 to {self.tasks - 1}")
        return range(number, len(self.grid), self.tasks)

    def task(self, task: int | str) -> Path:
        """Run the points of task ``task``, from 0, on one core, and write their rows; returns the file.

        A job that is ended goes on with the points that it had not finished when it is started again.
        """
        numbers, whole = self.points(task), self._part(_whole(task))
        if whole.is_file() and not _margay.Finished.read(whole).left(self.grid, numbers):
            return whole
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunError(f"{self.folder}: {error.strerror}") from error
        begun = whole.with_suffix(".begun")
        done = _margay.Finished(begun)
        for at in done.left(self.grid, numbers):
            done.add(self.grid.key(at), self.grid.run(at))
        done.sync()
        try:
            os.replace(begun, whole)
        except OSError as error:
            raise RunError(f"{whole}: cannot be written ({error.strerror}); what is finished is in {begun}") from error
        return whole

    def collect(self, finished: str | PathLike[str] | None = None) -> Sweep:
        """The finished points of all tasks, once every task is; with ``finished`` they are also written to that file, with
        which :func:`margay.sweep` and the command go on.

        Raises :class:`margay.RunError` with the numbers of the tasks that are not finished.
        """
        done = _margay.Finished(finished)
        done.gather(self.grid, sorted(self.folder.glob("part-*.points")))
        rows = done.rows(self.grid)
        missing = sorted({at % self.tasks for at, row in enumerate(rows) if row is None})
        if missing:
            names = ", ".join(map(str, missing[:10])) + (" and more" if len(missing) > 10 else "")
            raise RunError(
                f"{self.folder}: {len(missing)} of {self.tasks} tasks are not finished: {names}; run them again"
            )
        done.sync()
        return Sweep(self.grid, rows)

    def __repr__(self) -> str:
        """How many tasks and points there are."""
        return f"<margay.SweepJobs of {self.tasks} tasks, {len(self.grid)} points>"


def _whole(number: object) -> int:
    """A whole number, which may be text, as environments have it; -1 if it is none."""
    try:
        if isinstance(number, bool):
            return -1
        return int(number) if isinstance(number, str) else operator.index(number)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return -1


def split(trace: str | PathLike[str], folder: str | PathLike[str]) -> list[str]:
    """Write the requests to each volume of a trace to a file of its own in ``folder``, once: the files, in the order in which
    the volumes appear.

    ``trace`` is a file, or a URL of fsspec. A folder that holds the parts of a trace with the same content is left as it is.
    Raises :class:`margay.InputError` for a trace that cannot be read, :class:`margay.RunError` for a folder that cannot be
    written.
    """
    return [file for file, _writes in _split(trace, Path(folder))]


def _split(trace: str | PathLike[str], folder: Path) -> list[tuple[str, int]]:
    """The files, each with the number of writes in it."""
    path = files.fetch(os.fspath(trace))
    digest = _margay.file_hash(path)
    note = folder / "split.json"
    try:
        known = json.loads(note.read_text())
        if known["xxh3"] == digest and all((folder / part).is_file() for part in known["writes"]):
            return [(str(folder / part), int(writes)) for part, writes in known["writes"].items()]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        pass
    begun = folder / f"split-{uuid.uuid4().hex}.json"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # From the first part that is replaced to the last one the folder is of no trace.
        note.unlink(missing_ok=True)
        parts = {Path(part).name: writes for _device, part, writes in _margay.split_trace(path, folder)}
        try:
            begun.write_text(json.dumps({"xxh3": digest, "writes": parts}))
            os.replace(begun, note)
        finally:
            begun.unlink(missing_ok=True)
    except InputError:
        raise
    except OSError as error:
        raise RunError(f"{folder}: {error.strerror or error}") from error
    return [(str(folder / part), writes) for part, writes in parts.items()]


#: What adds up over volumes.
_SUMS = ("host_writes", "copies", "metadata_pages", "erases")


class VolumeSweep:
    """A sweep of every volume of a trace, each on a device of its own."""

    def __init__(self, sweep: Sweep, left_out: Sequence[str] = ()) -> None:
        """The sweep, of which each source is a volume, and the files of volumes that were left out of it."""
        self.sweep = sweep
        #: The files of volumes that were left out, because nothing is written to them.
        self.left_out = list(left_out)

    @property
    def table(self) -> Table:
        """One row for each point of each volume; ``source`` is the file of the volume."""
        return self.sweep.table

    def totals(self) -> list[dict[str, Any]]:
        """All volumes together, for each combination of the other settings and each seed.

        ``host_writes``, ``copies``, ``metadata_pages`` and ``erases`` are sums; ``wa`` is (host writes + copies + metadata
        pages) / host writes of all, in which a volume counts as much as it writes; ``wa_max`` is that of the worst volume.
        """
        totals: dict[tuple[object, ...], dict[str, Any]] = {}
        for row in self.table.rows():
            settings = {key: value for key, value in row.items() if key.startswith("set.") and key != "set.source"}
            total = totals.setdefault(
                (*settings.values(), row["seed"]),
                {**settings, "seed": row["seed"], "volumes": 0, "wa_max": 0.0, **dict.fromkeys(_SUMS, 0)},
            )
            total["volumes"] += 1
            total["wa_max"] = max(total["wa_max"], row["wa"])
            for key in _SUMS:
                total[key] += row[key]
        for total in totals.values():
            programmed = total["host_writes"] + total["copies"] + total["metadata_pages"]
            total["wa"] = programmed / total["host_writes"]
        return list(totals.values())


def sweep_volumes(trace: str | PathLike[str], folder: str | PathLike[str], **options: Any) -> VolumeSweep:
    """Split a trace of many volumes once, and sweep them all, each on a device of its own.

    The other keywords are those of :func:`margay.sweep`, ``engine`` and ``scheduler`` included. Without a device each volume has
    one of the size that it writes to. Volumes that are only read are left out (``left_out`` of what is returned names them).
    """
    parts = _split(trace, Path(folder))
    written = [file for file, writes in parts if writes]
    if not written:
        raise UsageError(f"{os.fspath(trace)}: no volume is written, so there is nothing to measure")
    return VolumeSweep(sweep(written, **options), [file for file, writes in parts if not writes])
