"""What the pictures share: style, names, labels, and the numbers of a point."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec

import numpy as np
from numpy.typing import NDArray

from margay._columns import Columns
from margay.errors import UsageError

try:
    from matplotlib import pyplot, rcParams
except ImportError as missing:
    raise ImportError("margay.plot needs matplotlib: pip install 'margay[plots]'") from missing

if TYPE_CHECKING:
    from matplotlib.axes import Axes

P = ParamSpec("P")

#: The colours of Okabe and Ito, which the colour-blind tell apart, from dark to light; yellow, which vanishes in print, last.
COLOURS = ("#000000", "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#F0E442")
DASHES: tuple[Any, ...] = ("-", "--", "-.", ":", (0, (7, 2)), (0, (5, 1, 1, 1, 1, 1)), (0, (1, 3)), (0, (9, 2, 2, 2)))
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
HATCH = "////"
GREY = "#666666"
STYLE: Any = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.6,
    "lines.markersize": 5,
    "legend.frameon": False,
    "hatch.linewidth": 0.8,
    "savefig.dpi": 150,
    "svg.fonttype": "none",
}
POLICIES = ("source", "device", "selection", "placement", "leveling")
#: Labels and factors of columns on an axis.
LABELS = {
    "over_provisioning": ("Over-provisioning (% of the exported pages)", 100.0),
    "effective_over_provisioning": ("Effective over-provisioning (% of the exported pages)", 100.0),
    "utilization": ("Utilization (% of the data pages)", 100.0),
    "pages_per_segment": ("Pages per segment", 1.0),
    "segments": ("Segments", 1.0),
    "wa": ("Write amplification\n(pages programmed / pages written)", 1.0),
    "wa_warm": ("Write amplification\n(pages programmed / pages written)", 1.0),
    "erases_deviation": ("Spread of wear\n(standard deviation of the erases)", 1.0),
    "erases_max": ("Most worn segment (erases)", 1.0),
    "erases": ("Erases", 1.0),
    "victim_utilization": ("Valid pages of a victim (%)", 100.0),
    "forecast.years_first": ("Until the first segment\nis worn out (years)", 1.0),
    "forecast.years_share": ("Until a share of the segments\nis worn out (years)", 1.0),
    "forecast.years_mean": ("Until all segments\nare worn out, evenly (years)", 1.0),
    "forecast.tbw_first": ("Written until the first segment\nis worn out (TB)", 1.0),
    "forecast.tbw_mean": ("Written until all segments\nare worn out, evenly (TB)", 1.0),
    "throughput_bytes_per_s": ("Modelled throughput (MB/s)", 1e-6),
    "misses": ("Misses of the cache", 1.0),
    "migrations": ("Pages copied by merges", 1.0),
    "erases_of_blocks": ("Erases", 1.0),
    "gc_cost_us": ("Modelled time of merges (s)", 1e-6),
    "io_us": ("Modelled time of all flash work (s)", 1e-6),
}


def label_of(name: str) -> tuple[str, float]:
    return LABELS.get(name, (name.replace("_", " "), 1.0))


def styled(draw: Callable[P, Axes]) -> Callable[P, Axes]:
    """What is drawn in the style of these pictures, whatever the style of the session is."""

    @wraps(draw)
    def drawn(*args: P.args, **kwargs: P.kwargs) -> Axes:
        # Not rc_context: it would also undo that a notebook becomes interactive with its first picture.
        kept = {key: rcParams[key] for key in STYLE}
        rcParams.update(STYLE)
        try:
            return draw(*args, **kwargs)
        finally:
            rcParams.update(kept)

    return drawn


def axes(ax: Axes | None, width: float = 5.6, height: float = 3.5) -> Axes:
    """The axes to draw into."""
    return ax if ax is not None else pyplot.subplots(figsize=(width, height), layout="constrained")[1]


def style_of(index: int) -> dict[str, Any]:
    """How the line of this index looks."""
    colours = [*COLOURS[:-1]]
    return {
        "color": colours[index % len(colours)],
        "linestyle": DASHES[(index + index // len(DASHES)) % len(DASHES)],
        "marker": MARKERS[index % len(MARKERS)],
    }


def across(name: str) -> str:
    """The label of a horizontal axis."""
    return label_of(name)[0].replace("\n", " ")


def need(table: Columns, what: str, *names: str) -> None:
    """Raise unless the table has rows, and these columns."""
    if not len(next(iter(table.values()), ())):
        raise UsageError(f"{what}: the table has no rows")
    missing = [name for name in names if name not in table]
    if missing:
        raise UsageError(
            f"{what} needs the column {missing[0]}, which the table has not; its columns are {', '.join(table)}"
        )


def numbers_of(table: Columns, what: str, name: str) -> NDArray[np.float64]:
    """A column of numbers."""
    need(table, what, name)
    try:
        return table[name].astype(np.float64)
    except (TypeError, ValueError):
        cell = next((cell for cell in table[name] if isinstance(cell, str)), None)
        raise UsageError(f"{what}: the column {name} is no column of numbers; it holds {cell!r}") from None


def differing(table: Columns, by: str | Sequence[str] | None, what: str) -> list[str]:
    """The columns that tell lines apart: those asked for, else the ones of policies and sources that differ."""
    if by is not None:
        names = [by] if isinstance(by, str) else list(by)
        need(table, what, *names)
        return names
    names = [name for name in POLICIES if name in table]
    differing = [name for name in names if len(set(table[name])) > 1]
    return differing or [name for name in ("selection", "placement") if name in table] or names[:1]


def name_of(cells: Sequence[Any]) -> str:
    return " + ".join(f"{cell:g}" if isinstance(cell, float) else str(cell) for cell in cells)


def short(specs: NDArray[Any]) -> list[Any]:
    """Policies with parameters that tell them from others of their name: `cat`, and not `cat:shape=sqrt,scale=1d`."""
    if not all(isinstance(spec, str) for spec in specs):
        return list(specs)
    split = {spec: (spec.partition(":")[0], spec.partition(":")[2].split(",")) for spec in set(specs)}
    short = {}
    for spec, (name, parameters) in split.items():
        others = [other for base, other in split.values() if base == name]
        kept = [one for one in parameters if one and not all(one in other for other in others)]
        alone = [one for one in kept if sum(one in other for other in others) == 1]
        kept = alone[:1] or kept
        short[spec] = f"{name}:{','.join(kept)}" if kept else name
    return [short[spec] for spec in specs]


def names_of(table: Columns, by: list[str]) -> list[str]:
    """The name of each row."""
    cells = [short(table[name]) if name in POLICIES[2:] else list(table[name]) for name in by]
    return [name_of(row) for row in zip(*cells, strict=True)] if by else [""] * len(next(iter(table.values())))


def groups_of(table: Columns, by: list[str]) -> dict[str, NDArray[np.intp]]:
    """The rows of each line, in the order in which they come."""
    rows: dict[str, list[int]] = {}
    for row, name in enumerate(names_of(table, by)):
        rows.setdefault(name, []).append(row)
    return {name: np.array(of) for name, of in rows.items()}


#: What a metric is over the seeds of a group, where the rows say so.
OF_GROUP = {"wa_warm": ("group_wa_warm", "group_wa_warm_half95")}
OF_RUN = {"wa_warm": "wa_warm_half95"}


def estimates(table: Columns, metric: str, what: str) -> Iterator[tuple[float, float, float]]:
    """For each row, the metric and the ends of its interval (both NaN if it is not known)."""
    values = numbers_of(table, what, metric)
    half = numbers_of(table, what, OF_RUN[metric]) if OF_RUN.get(metric) in table else np.full(len(values), np.nan)
    mean, of_group = OF_GROUP.get(metric, ("", ""))
    if mean in table and of_group in table:
        means, halves = numbers_of(table, what, mean), numbers_of(table, what, of_group)
        seeds = numbers_of(table, what, "group_seeds") if "group_seeds" in table else np.full(len(values), 1.0)
        # One seed has the interval of its own run, if it has one.
        values = np.where(np.isnan(means), values, means)
        half = np.where(np.isnan(halves) & (seeds <= 1), half, halves)
    for value, width in zip(values, half, strict=True):
        yield value, value - width, value + width


def point(table: Columns, rows: NDArray[np.intp], metric: str, what: str) -> tuple[float, float, float]:
    """The metric of rows that are one point: their own estimate, or that of a group, or the range of several seeds."""
    found = list(estimates({name: cells[rows] for name, cells in table.items()}, metric, what))
    if len({value for value, _, _ in found}) == 1:
        return found[0]
    values = [value for value, _, _ in found]
    return float(np.mean(values)), min(values), max(values)


def bounds_note(table: Columns, metric: str) -> str:
    """What a band or bar around a metric is."""
    if metric in OF_GROUP and (OF_GROUP[metric][0] in table or OF_RUN[metric] in table):
        return "95 % interval"
    return "all seeds"


def legend(ax: Axes, title: str | None = None) -> None:
    handles, labels = ax.get_legend_handles_labels()
    if len(handles) > 5:
        ax.legend(handles, labels, title=title, loc="center left", bbox_to_anchor=(1.01, 0.5), handlelength=3.5)
    elif len(handles) > 1:
        ax.legend(handles, labels, title=title, handlelength=3.5)
