"""What calls have in common: checks of keywords that are no settings of a run."""

from __future__ import annotations

import operator

from margay.errors import UsageError


def within(name: str, value: int, low: int, high: int) -> int:
    """A whole number, of Python or of NumPy, from ``low`` (0 or more) to ``high``."""
    try:
        number = -1 if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = -1
    if not low <= number <= high:
        raise UsageError(f"{name} = {value}: expected a number from {low:,} to {high:,}")
    return number


def count(name: str, value: int | None) -> int | None:
    """A number of seeds, or none."""
    return None if value is None else within(name, value, 1, 1_000_000)


def jobs(value: int | None) -> int | None:
    """A number of threads or processes, or none."""
    return None if value is None else within("jobs", value, 1, 65_536)


def wants_cluster(engine: str, scheduler: object) -> bool:
    """Whether the runs are for a cluster of Dask."""
    if engine not in ("local", "dask"):
        raise UsageError(f"engine = {engine}: expected 'local' or 'dask'")
    if engine == "local" and scheduler is not None:
        raise UsageError("scheduler names a cluster of Dask: add engine='dask'")
    return engine == "dask"


def trials(value: int) -> int:
    """A number of trials of Optuna, which may be 0."""
    return within("trials", value, 0, 1_000_000)
