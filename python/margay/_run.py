"""The calls that run experiments: one, a comparison, a sweep."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from typing import TYPE_CHECKING, overload

from margay import _checks, _margay, distributed, files
from margay.errors import RunError

if TYPE_CHECKING:
    from typing import Unpack

    from margay._margay import Grid, Result, Results, Table
    from margay._options import GridOptions, ManyOptions, Options, Source


@overload
def simulate(source: Source, *, seeds: None = None, jobs: int | None = None, **options: Unpack[Options]) -> Result: ...


@overload
def simulate(source: Source, *, seeds: int, jobs: int | None = None, **options: Unpack[Options]) -> Results: ...


def simulate(
    source: Source, *, seeds: int | None = None, jobs: int | None = None, **options: Unpack[Options]
) -> Result | Results:
    """Replay a trace or workload on a device under one set of policies, as ``margay replay`` does.

    ``source`` is a trace file, a workload such as ``"hot-cold:90/10"``, or a :class:`margay.Trace`. The keywords are the
    options of the command (``margay.options()`` lists them). With ``seeds=N`` the run is done with N seeds on ``jobs`` threads
    (all cores without it), and the results are a :class:`margay.Results` of N.

    Other threads of Python run meanwhile, and Ctrl-C ends the run.

    Raises :class:`margay.UsageError` for an unknown name or an impossible value, :class:`margay.InputError` for a trace that
    cannot be read, :class:`margay.RunError` for a run that fails; the text is the command's.
    """
    settings = {"source": source, **options}
    many = _checks.count("seeds", seeds)
    return _margay.simulate(settings) if many is None else _margay.simulate_seeds(settings, many, _checks.jobs(jobs))


def compare(
    source: Source,
    *,
    seeds: int | None = None,
    jobs: int | None = None,
    all: bool = False,
    **options: Unpack[ManyOptions],
) -> Results:
    """Replay a trace or workload under many policies, on all cores, as ``margay compare`` does.

    ``selection`` and ``placement`` each take a name or a list of names; without them the usual ones are compared, and with
    ``all=True`` every one in the tables. ``seeds`` is the number of seeds of each pair: 5 where workload or policy is random,
    if it is not given. ``results.advice`` says which pair to choose.

    Raises as :func:`simulate` does; the first run that fails ends the comparison.
    """
    listed = {key: _listed(options.get(key)) for key in ("selection", "placement") if options.get(key) is not None}
    return _margay.compare(
        {"source": source, **options, **listed}, _checks.count("seeds", seeds), _checks.jobs(jobs), all
    )


def sweep(
    source: Source | Sequence[Source],
    *,
    seeds: int | None = None,
    jobs: int | None = None,
    finished: str | PathLike[str] | None = None,
    restart: bool = False,
    engine: str = "local",
    scheduler: object = None,
    **options: Unpack[GridOptions],
) -> Sweep:
    """Replay with every value of every option crossed with every value of the others, as ``margay sweep`` does.

    Each keyword takes a value, a list of values, or a range such as ``"0.07..0.28:0.03"`` (both ends included) or
    ``"64..512:*2"``. ``seeds`` is the number of seeds of each point: 5 where chance is at work, if it is not given.

    ``finished`` is the file in which finished points are kept, and never run again; the command's file ``OUTPUT.points`` is
    one. With ``restart=True`` all points are run anew.

    With ``engine="dask"`` the points are run on a cluster: ``scheduler`` is its address, the file of a scheduler, a client of Dask or
    a cluster of one of its deployers, and without it ``jobs`` processes are started on this machine. The rows are the same.
    A source can be a URL of fsspec, such as ``s3://bucket/trace.csv.zst``; every machine reads it once.

    Raises as :func:`simulate` does, before anything is run if a point is impossible. If a point fails while it is run, the others
    are finished first, and the exception names it. After Ctrl-C the points that were finished are in ``finished``.
    """
    is_for_cluster, threads = _checks.wants_cluster(engine, scheduler), _checks.jobs(jobs)
    points = grid(files.fetched(source), seeds=seeds, **options)
    if is_for_cluster:
        rows, failures = distributed.run_grid(points, finished, restart, scheduler, threads)
    else:
        rows, failures = points.run_all(finished, restart, threads)
    if failures:
        at, problem = failures[0]
        more = f" (and {len(failures) - 1} more points)" if len(failures) > 1 else ""
        done = sum(row is not None for row in rows)
        kept = f"; {done} of {len(points)} points are finished and kept in {finished}" if finished is not None else ""
        raise RunError(f"the point {points.name(at)} failed: {problem}{more}{kept}")
    return Sweep(points, rows)


def grid(source: Source | Sequence[Source], *, seeds: int | None = None, **options: Unpack[GridOptions]) -> Grid:
    """The points of a sweep, without running them: for other machines, and for arrays of jobs.

    ``grid.run(i)`` runs point ``i`` and returns its row as JSON; ``grid.table(rows)`` is the table of all rows.
    """
    sources: object = source
    if isinstance(source, Sequence) and not isinstance(source, str):
        sources = list(source)
    return _margay.Grid({"source": sources, **options}, _checks.count("seeds", seeds))


class Sweep:
    """The finished points of a sweep."""

    def __init__(self, points: Grid, rows: Sequence[str | None]) -> None:
        """The points, and the JSON of the row of each, in their order; ``None`` for those that are not finished."""
        self.grid = points
        self._rows = list(rows)

    def __len__(self) -> int:
        """The number of points."""
        return len(self.grid)

    @property
    def names(self) -> list[str]:
        """What sets each point apart, in order."""
        return [self.grid.name(at) for at in range(len(self.grid))]

    @property
    def table(self) -> Table:
        """One row for each finished point, with the columns of the command's files: ``set.NAME`` is a setting that varies."""
        return self.grid.table(self._rows)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The table, for polars, pandas, DuckDB and others."""
        return self.table.__arrow_c_stream__(requested_schema)

    def __repr__(self) -> str:
        """How many points there are."""
        return f"<margay.Sweep of {len(self)} points>"

    def _repr_html_(self) -> str:
        return self.table._repr_html_()


def _listed(given: object) -> list[object]:
    """A name, a list with commas, or several names, as the command takes them; policies of Python among them."""
    return list(given) if isinstance(given, Sequence) and not isinstance(given, str) else [given]
