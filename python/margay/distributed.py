"""Sweeps on many machines: a cluster of Dask, or an array of jobs.

A task is a batch of points of about a second. Points go out as text and rows come back as text: traces are named by path and
hash, and each worker reads them itself. The file of finished points is the only one that is written, by the machine that asked;
a task that a dead worker had begun is begun anew elsewhere, and each point is added once.
"""

from __future__ import annotations

import json
import os
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike
from typing import IO, TYPE_CHECKING, Any

from margay import _margay, files
from margay.errors import Error, InputError, RunError, UsageError

if TYPE_CHECKING:
    from margay._margay import Grid, PointRunner

#: How long a task is meant to take, in seconds.
TASK_SECONDS = 1.0
#: How long a cluster may be without any worker, in seconds; a batch system may need a while to start the first.
PATIENCE = 600.0

Failures = list[tuple[int, str, str]]


@dataclass(frozen=True)
class Point:
    """A point, as text."""

    key: str
    name: str
    settings: str


def kind_of(error: BaseException) -> str:
    """The kind of an exception, as the command names it."""
    if isinstance(error, UsageError):
        return "usage"
    return "input" if isinstance(error, InputError) else "run"


def exception_of(kind: str, text: str) -> Error:
    """The exception of a kind."""
    return {"usage": UsageError, "input": InputError}.get(kind, RunError)(text)


# What runs on a worker.

_runner: PointRunner | None = None
_of_runner = threading.Lock()


def _point_runner() -> PointRunner:
    global _runner
    with _of_runner:
        if _runner is None:
            _runner = _margay.PointRunner(os.cpu_count() or 1)
        return _runner


def run_batch(
    version: str, points: Sequence[tuple[str, str]], places: dict[files.Named, files.Place]
) -> tuple[list[tuple[str | None, str, str]], float]:
    """Run points of (key, settings), on a worker.

    Returns for each the JSON of its row, or None with the kind and the text of the error; and the seconds that it took.
    """
    if version != _margay.__version__:
        raise UsageError(
            f"the worker has margay {_margay.__version__}, the sweep is of {version}; install the same version"
        )
    began = time.perf_counter()
    results: list[tuple[str | None, str, str]] = []
    for _key, settings in points:
        try:
            named = files.files_of_text(settings, places)
            paths = {name: files.here(place) for name, place in named.items()}
            results.append((_point_runner().run(files.moved(settings, paths)), "", ""))
        except Error as error:
            results.append((None, kind_of(error), str(error)))
    return results, time.perf_counter() - began


# What runs where the sweep was asked for.


def _dask() -> Any:
    try:
        import distributed
    except ImportError:
        raise RunError("engine = dask: Dask is not installed: python3 -m pip install 'margay[dask]'") from None
    return distributed


@contextmanager
def client_of(scheduler: object, jobs: int | None = None) -> Iterator[Any]:
    """A client of a cluster of Dask.

    ``scheduler`` is an address, the file of a scheduler, a client, or a cluster of Dask's own deployers. With None it is a new
    cluster of ``jobs`` processes on this machine, which ends with the context.
    """
    distributed = _dask()
    if isinstance(scheduler, distributed.Client):
        yield scheduler
        return
    if scheduler is None:
        workers = jobs or os.cpu_count() or 1
        with (
            distributed.LocalCluster(
                n_workers=workers, threads_per_worker=1, processes=True, dashboard_address=":0"
            ) as cluster,
            distributed.Client(cluster) as client,
        ):
            yield client
        return
    file = os.fspath(scheduler) if isinstance(scheduler, (str, PathLike)) else None
    try:
        is_file = file is not None and os.path.isfile(file)
        client = distributed.Client(**({"scheduler_file": file} if is_file else {"address": scheduler}))
    except (OSError, TimeoutError, ValueError, TypeError) as error:
        raise RunError(
            f"scheduler = {scheduler}: no scheduler of Dask answers there ({error}); "
            "`dask scheduler` starts one, and prints its address"
        ) from error
    with client:
        yield client


class _Driver:
    """Gives points to a cluster, some tasks ahead of its threads, and takes the rows as they come."""

    def __init__(self, client: Any, points: Sequence[Point], emit: Callable[[str, str], None], patience: float) -> None:
        self.client = client
        self.points = points
        self.emit = emit
        self.patience = patience
        self.left = deque(range(len(points)))
        self.flying: dict[Any, list[int]] = {}
        self.over: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.failures: Failures = []
        #: Seconds of a point, as they were lately.
        self.seconds: float | None = None
        self.places: dict[str, files.Place] = {}
        self.threads = 0
        self.alive = time.monotonic()
        self.looked = 0.0

    def place(self, path: str) -> files.Place:
        if path not in self.places:
            self.places[path] = files.place_of(path)
        return self.places[path]

    def size(self) -> int:
        """Points of the next task: a second of work, less at the end so that all threads end together."""
        if self.seconds is None:
            return 1
        share = -(-len(self.left) // (2 * max(1, self.threads)))
        return max(1, min(int(TASK_SECONDS / max(self.seconds, 1e-6)), share))

    def submit(self, numbers: list[int]) -> None:
        batch = [(self.points[at].key, self.points[at].settings) for at in numbers]
        places = {name: self.place(name[1]) for at in numbers for name in files.files_of(self.points[at].settings)}
        future = self.client.submit(run_batch, _margay.__version__, batch, places, pure=False)
        self.flying[future] = numbers
        future.add_done_callback(self.over.put)

    def fill(self) -> None:
        # Until the first task is over nobody knows how long a point takes.
        ahead = max(1, self.threads) * (1 if self.seconds is None else 2)
        while self.left and len(self.flying) < ahead:
            count = self.size()
            self.submit([self.left.popleft() for _ in range(min(count, len(self.left)))])

    def look(self) -> None:
        """Look for workers, now and then."""
        now = time.monotonic()
        if now - self.looked < 1.0:
            return
        self.looked = now
        where = getattr(self.client.scheduler, "address", "the scheduler")
        try:
            threads = self.client.nthreads()
        except (OSError, TimeoutError, RuntimeError) as error:
            raise RunError(f"the scheduler at {where} is gone: {error}") from error
        if self.client.status not in ("running", "connecting", "newly-created"):
            raise RunError(f"the scheduler at {where} is gone (the client is {self.client.status})")
        self.threads = sum(threads.values())
        if self.threads:
            self.alive = now
        elif now - self.alive > self.patience:
            raise RunError(
                f"no worker is left at {where} since {self.patience:.0f} s; start workers: dask worker {where}"
            )

    def done(self, future: Any) -> None:
        numbers = self.flying.pop(future)
        if future.status == "finished":
            results, seconds = future.result()
            each = seconds / len(numbers)
            self.seconds = each if self.seconds is None else 0.5 * (self.seconds + each)
            for at, (row, kind, text) in zip(numbers, results, strict=True):
                if row is None:
                    self.failures.append((at, kind, text))
                else:
                    self.emit(self.points[at].key, row)
            return
        if future.status == "cancelled":
            raise RunError("the scheduler dropped the tasks of the sweep; it was restarted or stopped")
        error = future.exception()
        if type(error).__name__ == "KilledWorker":
            self.died(numbers)
        elif isinstance(error, ImportError):
            raise RunError(f"the workers do not have margay ({error}): python3 -m pip install 'margay[dask]' there")
        elif isinstance(error, Error):
            raise error
        else:
            raise RunError(f"a task of the sweep failed on its worker: {type(error).__name__}: {error}")

    def died(self, numbers: list[int]) -> None:
        """Several workers died of a task: each of its points is tried alone, and given up if it was alone."""
        if len(numbers) > 1:
            for at in numbers:
                self.submit([at])
            return
        text = (
            "every worker that ran it died; the system may have ended them for want of memory (see the workers' logs)"
        )
        self.failures.append((numbers[0], "run", text))

    def run(self) -> Failures:
        try:
            while self.left or self.flying:
                self.look()
                if self.threads:
                    self.fill()
                try:
                    future = self.over.get(timeout=0.5)
                except queue.Empty:
                    continue
                if future in self.flying:
                    self.done(future)
                    future.release()
        finally:
            if self.flying:
                self.client.cancel(list(self.flying), force=True)
        return sorted(self.failures)


def run_points(
    points: Sequence[Point],
    emit: Callable[[str, str], None],
    scheduler: object = None,
    *,
    jobs: int | None = None,
    patience: float = PATIENCE,
) -> Failures:
    """Run points on a cluster; ``emit(key, row)`` is called with each that is finished, once. Returns those that failed."""
    if not points:
        return []
    # A process without a point would cost its memory all the same.
    with client_of(scheduler, jobs and min(jobs, len(points))) as client:
        return _Driver(client, points, emit, patience).run()


def points_of(grid: Grid, numbers: Sequence[int]) -> list[Point]:
    """Points of a sweep, as text."""
    return [Point(grid.key(at), grid.name(at), _margay.point_settings(grid, at)) for at in numbers]


def run_grid(
    grid: Grid,
    finished: str | PathLike[str] | None,
    restart: bool,
    scheduler: object,
    jobs: int | None,
    patience: float = PATIENCE,
) -> tuple[list[str | None], list[tuple[int, str]]]:
    """Run the points of a sweep that are not finished, on a cluster.

    Returns as ``grid.run_all`` does: the JSON of each row, and the numbers of points that failed with the reasons.
    """
    done = _margay.Finished(finished, restart)
    left = done.left(grid)
    # What cannot be sent is refused before a cluster is started.
    points = points_of(grid, left)
    try:
        failures = run_points(points, done.add, scheduler, jobs=jobs, patience=patience)
    except Error as error:
        kept = f"; {len(grid) - len(done.left(grid))} of {len(grid)} points are finished"
        kept += f" and kept in {finished}: the same call goes on" if finished is not None else ""
        raise exception_of(kind_of(error), f"{error}{kept}") from error
    done.sync()
    return done.rows(grid), [(left[at], text) for at, _kind, text in failures]


def run_points_of_command(given: IO[str], out: IO[str], scheduler: str | None, jobs: int | None = None) -> int:
    """What ``margay sweep --engine dask`` calls: points as lines of JSON in, rows as lines of JSON out."""

    def say(what: str, **fields: object) -> None:
        # A row is JSON already.
        row = fields.pop("row", None)
        text = json.dumps({what: fields})
        if row is not None:
            text = f'{{"{what}": {{"key": {json.dumps(fields["key"])}, "row": {row}}}}}'
        out.write(text + "\n")
        out.flush()

    def run(points: Sequence[Point]) -> None:
        try:
            failures = run_points(points, lambda key, row: say("row", key=key, row=row), scheduler, jobs=jobs)
            for at, kind, text in failures:
                say("failed", key=points[at].key, kind=kind, text=text)
        except Error as error:
            say("over", kind=kind_of(error), text=str(error))
        except KeyboardInterrupt:
            say("over", kind="interrupted", text="stopped")

    try:
        run([Point(**json.loads(line)) for line in given])
    except BrokenPipeError:
        # The command is gone, and with it who wanted to know.
        return 1
    return 0
