"""Lists, formulas and forecasts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, TypeAlias, cast

import numpy as np

from margay import _margay
from margay._margay import Result
from margay.errors import UsageError

ListOf: TypeAlias = Literal[
    "selection",
    "placement",
    "leveling",
    "allocators",
    "schemes",
    "mappings",
    "replacements",
    "workloads",
    "traces",
    "devices",
]


def policies(of: ListOf | None = None) -> list[dict[str, Any]]:
    """What there is to choose from, as ``margay policies`` lists it.

    Each entry has ``of`` (which list it stands in), ``name``, ``summary``, ``parameters`` (names and what they mean, with their
    defaults) and ``source``, the paper. ``of`` names one list.
    """
    entries = _margay.policies()
    known = list(dict.fromkeys(entry["of"] for entry in entries))
    if of is not None and of not in known:
        raise UsageError(f"of = {of}: there is no such list; the lists are {', '.join(known)}")
    return [entry for entry in entries if of is None or entry["of"] == of]


def options() -> list[dict[str, Any]]:
    """The keywords of :func:`margay.simulate`: ``name``, ``help`` (the command's), and ``is_flag``."""
    return _margay.options()


def model(name: str, **parameters: float | str) -> dict[str, float]:
    """Evaluate a closed formula of cleaning cost, as ``margay model`` does.

    ``op``, ``spare`` or ``rho`` can stand in for ``alpha`` (physical / exported pages); ``idle="3/1024"`` takes segments off that
    are open or kept free. :func:`models` lists the formulas with their parameters. Returns names and values.
    """
    return _margay.evaluate(name, [(key, _text(value)) for key, value in parameters.items()])


def models() -> list[dict[str, Any]]:
    """The formulas of :func:`model`: ``name``, ``summary``, ``parameters`` and ``source``."""
    return _margay.models()


def forecast(
    erases: Result | Iterable[int],
    *,
    endurance_erases: int | None = None,
    worn_share: float = 0.1,
    host_bytes: float | None = None,
    duration_s: float | None = None,
) -> dict[str, Any]:
    """How long flash lasts if its work goes on as measured.

    ``erases`` is a result, or the number of erases of each segment while the host wrote ``host_bytes`` bytes in ``duration_s``
    seconds; ``endurance_erases`` is the number that a segment is rated for. What is given beside a result takes the place of what
    was measured: another ``endurance_erases`` asks for another part.

    Returns years and terabytes (10^12 bytes) written until the first segment is worn out (``years_first``, ``tbw_first``), until
    ``worn_share`` of them are (``years_share``, ``tbw_share``), and at the mean rate of all (``years_mean``, ``tbw_mean``), which
    perfect leveling would reach; ``None`` where nothing can be said.
    """
    row: dict[str, Any] | None = erases.row if isinstance(erases, Result) else None
    given = erases.segments["erases"] if isinstance(erases, Result) else erases
    counts = [_erases(count) for count in given]
    if row is not None:
        endurance_erases = row["forecast"]["endurance_erases"] if endurance_erases is None else endurance_erases
        host_bytes = float(row["host_writes"]) * row["page_bytes"] if host_bytes is None else host_bytes
        duration_s = row["duration_s"] if duration_s is None else duration_s
    if endurance_erases is None or host_bytes is None:
        raise UsageError("erases without a result need endurance_erases and host_bytes")
    if not 0 < endurance_erases < 2**32:
        raise UsageError(f"endurance_erases = {endurance_erases}: expected 1 to 4294967295")
    return _margay.forecast(counts, endurance_erases, worn_share, host_bytes, duration_s or 0.0)


def _erases(count: Any) -> int:
    # A float that is whole, as NumPy and pandas have them, is a number of erases too.
    number = float(count) if isinstance(count, (int, float, np.number)) else -1.0
    if not (0 <= number < 2**32 and number.is_integer()):
        raise UsageError(f"erases: {count} is no number of erases; expected 0 to 4294967295")
    return int(count)


def _text(value: object) -> str:
    # A number of NumPy prints as one of Python.
    return value if isinstance(value, str) else repr(float(cast("float", value)))
