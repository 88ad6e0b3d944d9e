"""Pictures of results, one call each. Needs matplotlib: ``pip install margay[plots]``.

Every function draws into ``ax`` if it is given, else into a figure of its own, and returns the axes:
``plot.comparison(results).figure.savefig("bars.pdf")``. Tables are those of margay, or of Arrow, polars or pandas with the
same columns. Lines differ in style and marker, bars in hatching, and maps in lightness, so that nothing depends on colour.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from margay import _margay
from margay._columns import Columns, column, columns
from margay._drawing import (
    COLOURS,
    GREY,
    HATCH,
    across,
    axes,
    bounds_note,
    differing,
    groups_of,
    label_of,
    legend,
    names_of,
    need,
    numbers_of,
    point,
    style_of,
    styled,
)
from margay._margay import Result, Results
from margay.errors import UsageError

# Only now: `_drawing` says what to install where matplotlib is missing.
# isort: split
from matplotlib import pyplot
from matplotlib.colors import BoundaryNorm
from matplotlib.patheffects import withStroke
from matplotlib.text import Annotation, Text
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullLocator

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = [
    "COLOURS",
    "cache",
    "comparison",
    "maps",
    "pareto",
    "segments",
    "uniformity",
    "victims",
    "wear",
    "window",
    "write_amplification",
]


def _curves(table: Columns, ax: Axes, x: NDArray[np.float64], y: str, by: list[str], what: str) -> None:
    """A line for each group over x, with a band where intervals are known."""
    scale = label_of(y)[1]
    for index, (name, rows) in enumerate(groups_of(table, by).items()):
        style, places = style_of(index), np.unique(x[rows])
        points = [point(table, rows[x[rows] == place], y, what) for place in places]
        middle, low, high = (np.array([one[end] for one in points]) * scale for end in range(3))
        ax.plot(places, middle, label=name, markerfacecolor="white" if index % 2 else style["color"], **style)
        if np.isfinite(low).any():
            ax.fill_between(places, low, high, color=style["color"], alpha=0.18, linewidth=0)
    ax.set_ylabel(label_of(y)[0])


@styled
def write_amplification(
    data: object,
    *,
    x: str = "over_provisioning",
    y: str = "wa_warm",
    by: str | Sequence[str] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Write amplification over over-provisioning: a line for each set of policies, with bands where intervals are known.

    ``data`` is a table of a sweep. ``x`` and ``y`` may be other columns of numbers, such as ``pages_per_segment`` and
    ``forecast.years_first``; ``by`` names the columns that tell lines apart.
    """
    what = "plot.write_amplification"
    table = columns(data)
    places = numbers_of(table, what, x) * label_of(x)[1]
    need(table, what, y)
    ax = axes(ax)
    _curves(table, ax, places, y, differing(table, by, what), what)
    ax.set_xlabel(across(x))
    ax.set_ylim(bottom=1.0 if y in ("wa", "wa_warm") else 0.0)
    legend(ax, f"band: {bounds_note(table, y)}" if ax.collections else None)
    return ax


@styled
def comparison(
    data: object,
    *,
    y: str = "wa_warm",
    by: str | Sequence[str] | None = None,
    shown: int = 24,
    ax: Axes | None = None,
) -> Axes:
    """Bars in ascending order, with intervals: the rows of a comparison, no more than the first ``shown``.

    Hatched are those that cannot be told from the first one, because their 95 % intervals overlap.
    """
    what = "plot.comparison"
    table = columns(data)
    need(table, what, y)
    groups = groups_of(table, differing(table, by, what))
    scale = label_of(y)[1]
    found = {name: np.array(point(table, rows, y, what)) * scale for name, rows in groups.items()}
    names = sorted(found, key=lambda name: (bool(np.isnan(found[name][0])), found[name][0]))[: max(shown, 1)]
    ax = axes(ax, width=4.4 + 0.065 * max(map(len, names)), height=1.0 + 0.22 * len(names))
    places = np.arange(len(names))
    middle, low, high = np.array([found[name] for name in names]).T
    known = np.isfinite(low)
    overlaps = known & known[0] & (low <= high[0]) & (places > 0)
    for alike, rows in ((False, ~overlaps), (True, overlaps)):
        ax.barh(
            places[rows],
            middle[rows],
            color="white" if alike else "#9ccbe6",
            edgecolor="black",
            linewidth=0.8,
            hatch=HATCH if alike else None,
            height=0.68,
            label="no certain difference from the first: intervals overlap" if alike and rows.any() else None,
        )
    errors = np.array([middle - low, high - middle])[:, known]
    ax.errorbar(
        middle[known], places[known], xerr=errors, fmt="none", ecolor="black", elinewidth=1.2, capsize=3, zorder=3
    )
    ends = np.where(known, high, middle)
    for place, value, end in zip(places, middle, ends, strict=True):
        if np.isfinite(value):
            ax.annotate(
                f"{value:.3g}", (end, place), xytext=(5, 0), textcoords="offset points", va="center", fontsize=8
            )
    ax.set_yticks(places, names)
    ax.invert_yaxis()
    ax.set_ylim(len(names) - 0.4, -0.6)
    ax.set_xlim(0, float(np.nanmax(ends, initial=0.0)) * 1.12 or 1.0)
    ax.grid(axis="y", visible=False)
    ax.tick_params(axis="y", length=0)
    notes = [f"bars: {bounds_note(table, y)}"] if known.any() else []
    notes += [f"the first {len(names)} of {len(found)}"] if len(found) > len(names) else []
    ax.set_xlabel("\n".join([across(y), "; ".join(notes)]).strip())
    if overlaps.any():
        ax.legend(loc="lower left", bbox_to_anchor=(0, 1.0), fontsize=8, borderaxespad=0)
    return ax


def _is_result(data: object) -> bool:
    """Whether it is the result of one run, or its JSON."""
    return isinstance(data, Result) or (isinstance(data, Mapping) and isinstance(data.get("row"), Mapping))


def _part(result: object, name: str, what: str) -> Columns:
    """A table that is a part of a result, or that table itself."""
    if isinstance(result, Result):
        return columns(getattr(result, name))
    if not isinstance(result, Mapping) or not _is_result(result):
        return columns(result)
    if name == "series":
        return columns(result["series"])
    # JSON has lists where results have tables.
    of = "erases" if name == "segments" else name
    need(dict.fromkeys(result, np.empty(1)), what, of)
    values = column(result[of])
    return {"valid_pages": np.arange(len(values), dtype=np.float64), of: values}


def _results(data: object) -> dict[str, Any]:
    """Results by their names: those given, or what their policies are."""
    if isinstance(data, Results):
        data = list(data)
    if isinstance(data, Mapping) and not _is_result(data):
        if any(_is_result(one) or hasattr(one, "columns") or hasattr(one, "column_names") for one in data.values()):
            return {str(name): result for name, result in data.items()}
        return {"": data}
    if not isinstance(data, (list, tuple)):
        data = [data]
    if not data:
        raise UsageError("expected a result; the list is empty")
    if not all(_is_result(one) for one in data):
        return {"" if len(data) == 1 else str(at + 1): one for at, one in enumerate(data)}
    table = columns(list(data))
    by = differing(table, None, "results")
    seeds = len(set(zip(*(table[name] for name in by), strict=True))) < len(data) and "seed" in table
    return dict(zip(names_of(table, [*by, "seed"] if seeds else by), data, strict=True))


def _histogram(
    ax: Axes, index: int, edges: NDArray[np.float64], heights: NDArray[np.float64], mean: float, label: str, alone: bool
) -> None:
    """A histogram: filled, with its mean and what it is called above it, if it is alone; else an outline of its own style."""
    if alone:
        ax.stairs(heights, edges, fill=True, facecolor="#9ccbe6", edgecolor="black", linewidth=0.8)
        ax.axvline(mean, color="black", linestyle="--", linewidth=1.2)
        ax.set_title(label, fontsize=9, loc="left")
        return
    style = style_of(index)
    style.pop("marker")
    ax.stairs(heights, edges, linewidth=1.6, label=label, **style)


@styled
def wear(data: object, *, ax: Axes | None = None) -> Axes:
    """How often the segments were erased: a histogram of one result, or of several (a list, or a dictionary by name)."""
    ax = axes(ax)
    what = "plot.wear"
    named = _results(data).items()
    counts = {name: numbers_of(_part(result, "segments", what), what, "erases") for name, result in named}
    low, high = min(of.min() for of in counts.values()), max(of.max() for of in counts.values())
    step = max(1, round((high - low) / 40))
    edges = np.arange(low - 0.5, high + step + 0.5, step)
    for index, (name, of) in enumerate(counts.items()):
        told = f"mean {of.mean():.1f}, deviation {of.std(ddof=1) if len(of) > 1 else 0:.1f}, max {of.max():.0f}"
        heights = np.histogram(of, edges)[0].astype(np.float64)
        _histogram(ax, index, edges, heights, of.mean(), f"{name}: {told}" if name else told, len(counts) == 1)
    ax.set_xlabel("Erases of a segment")
    ax.set_ylabel("Segments")
    ax.set_ylim(bottom=0)
    ax.yaxis.set_major_locator(MaxNLocator(integer=True))
    if len(counts) > 1:
        ax.legend(handlelength=3.5, fontsize=8, loc="lower left", bbox_to_anchor=(0, 1.0), borderaxespad=0)
    return ax


@styled
def victims(data: object, *, ax: Axes | None = None) -> Axes:
    """How full the victims of cleaning were: a histogram of one result, or of several (a list, or a dictionary by name)."""
    ax = axes(ax)
    what = "plot.victims"
    named = _results(data).items()
    counts = {name: numbers_of(_part(result, "victims", what), what, "victims") for name, result in named}
    if not any(of.sum() for of in counts.values()):
        raise UsageError(
            "plot.victims: nothing was cleaned in the run, so there are no victims to show; run it for longer"
        )
    # Segments of different sizes have bins of their own, of no less than 2 %.
    for index, (name, of) in enumerate(counts.items()):
        full = (np.arange(len(of)) / (len(of) - 1)) * 100
        bins = min(len(of), 51)
        edges = np.linspace(-50 / (bins - 1), 100 + 50 / (bins - 1), bins + 1)
        share = np.histogram(full, edges, weights=of / max(of.sum(), 1) * 100)[0]
        # Of several, some may have cleaned nothing.
        mean = float(np.average(full, weights=of)) if of.sum() else np.nan
        label = f"{name} (mean {mean:.0f} %)" if of.sum() else name
        _histogram(ax, index, edges, share, mean, label, len(counts) == 1)
    ax.set_xlim(-3, 103)
    ax.set_ylim(bottom=0)
    ax.set_xlabel("Valid pages of a victim (% of its data pages)")
    ax.set_ylabel("Victims (%)")
    legend(ax)
    return ax


def _exported(result: object) -> float:
    row = columns([result])
    return float(row["exported_pages"][0]) if "exported_pages" in row else 1.0


@styled
def uniformity(result: object, *, ax: Axes | None = None) -> Axes:
    """Utilization, invalidity and uniformity (u, i, p) over a run: a result, or a table of its series.

    Utilization and invalidity are shares of the data pages; uniformity is the share of the segments that do not hold valid
    and invalid pages together.
    """
    what = "plot.uniformity"
    is_result = _is_result(result)
    table = _part(result, "series", what)
    writes = numbers_of(table, what, "host_writes") / (_exported(result) if is_result else 1.0)
    ax = axes(ax)
    named = (("utilization", "utilization, u"), ("uniformity", "uniformity, p"), ("invalidity", "invalidity, i"))
    for index, (name, label) in enumerate(named):
        style = style_of(index)
        every = max(1, len(writes) // 12)
        ax.plot(
            writes, numbers_of(table, what, name) * 100, label=label, markevery=(index * every // 3, every), **style
        )
    ax.set_ylim(0, 100)
    ax.set_xlim(0, writes[-1])
    ax.set_xlabel("Host writes (times the exported capacity)" if is_result else "Host writes (pages)")
    ax.set_ylabel("Share of data pages (u, i) or segments (p), %")
    ax.legend(loc="lower left", bbox_to_anchor=(0, 1.0), ncols=3, handlelength=3.5, borderaxespad=0)
    return ax


def maps(result: Result) -> dict[str, NDArray[Any]]:
    """How the segments looked over a run, as columns: a row for each segment at each of some hundred moments.

    ``host_writes`` (pages so far), ``segment``, ``erases``, ``valid`` (valid pages / data pages), ``stream`` (255 if the segment
    holds no data). Of more than 256 segments, neighbours share a row: ``segment`` is the first one, ``erases`` and
    ``valid`` are means. ``polars.DataFrame(maps(result))`` is a table that :func:`segments` draws.
    """
    if not isinstance(result, Result):
        raise UsageError(f"plot.maps needs a result of margay, not {type(result).__name__}")
    raw = _margay.segment_maps(result)
    writes = np.frombuffer(raw["host_writes"], dtype=np.uint64)
    if not len(writes):
        raise UsageError("plot.maps: the result was read from JSON, which has no maps of segments; run it anew")
    valid = np.frombuffer(raw["valid"], dtype=np.float32)
    bands, count = len(valid) // len(writes), int(result.row["segments"])
    firsts = np.arange(bands, dtype=np.uint64) * -(-count // bands)
    return {
        "host_writes": np.repeat(writes, bands),
        "segment": np.tile(firsts, len(writes)),
        "erases": np.frombuffer(raw["erases"], dtype=np.float32),
        "valid": valid,
        "stream": np.frombuffer(raw["streams"], dtype=np.uint8),
    }


_OF_SEGMENTS = {"erases": "Erases", "valid": "Valid pages (%)", "stream": "Stream"}


@styled
def segments(data: object, *, of: str = "erases", ax: Axes | None = None) -> Axes:
    """A heat map of the segments over a run: their ``"erases"``, ``"valid"`` pages, or ``"stream"``.

    ``data`` is a result, or a table as :func:`maps` gives. A column of the map is a moment, a row a segment. Segments that hold
    no data are white.
    """
    what = "plot.segments"
    if of not in _OF_SEGMENTS:
        raise UsageError(f"of = {of}: expected one of {', '.join(_OF_SEGMENTS)}")
    table = columns(maps(data)) if isinstance(data, Result) else columns(data)
    need(table, what, "host_writes", "segment", of, "stream")
    exported = _exported(data) if isinstance(data, Result) else 1.0
    order = np.lexsort((table["segment"], table["host_writes"]))
    moments, rows = np.unique(table["host_writes"]), np.unique(table["segment"])
    if len(moments) * len(rows) != len(order):
        raise UsageError(f"{what}: expected a row for each segment at each moment, as plot.maps gives them")
    values = np.ma.masked_array(numbers_of(table, what, of)[order].reshape(len(moments), len(rows)).T)
    if of != "erases":
        streams = numbers_of(table, what, "stream")[order].reshape(values.T.shape).T
        values = np.ma.masked_where(streams == 255, values)
    ax = axes(ax, height=3.8)
    ends = np.concatenate([[0.0], moments / exported])
    step = rows[1] - rows[0] if len(rows) > 1 else 1.0
    # Lightness rises with the value, so that grey shows it too.
    colours = pyplot.get_cmap("cividis")
    options: dict[str, Any] = {}
    ticks: Any = None
    if of == "stream":
        ticks = np.arange(int(values.max() if values.count() else 0) + 1)
        options = {"norm": BoundaryNorm(np.arange(len(ticks) + 1) - 0.5, colours.N)}
    else:
        values = values * (100 if of == "valid" else 1)
        options = {"vmin": 0, "vmax": 100} if of == "valid" else {"vmin": 0}
    mesh = ax.pcolormesh(ends, np.append(rows, rows[-1] + step), values, cmap=colours, rasterized=True, **options)
    ax.grid(visible=False)
    ax.figure.colorbar(mesh, ax=ax, label=_OF_SEGMENTS[of], ticks=ticks, pad=0.02)
    ax.set_xlabel("Host writes (times the exported capacity)" if isinstance(data, Result) else "Host writes (pages)")
    ax.set_ylabel("Segment")
    return ax


def _front(x: NDArray[np.float64], y: NDArray[np.float64]) -> list[int]:
    """The points that no other one beats in both."""
    best, least = [], np.inf
    for row in np.lexsort((y, x)):
        if y[row] < least:
            best.append(int(row))
            least = y[row]
    return best


def _annotate(
    ax: Axes, x: NDArray[np.float64], y: NDArray[np.float64], names: list[str], first: list[int], every: bool
) -> None:
    """Names beside points, each where it covers the least of what is there already: the first ones, or as many as fit."""
    figure = ax.figure.get_figure(root=True)
    assert figure is not None
    figure.canvas.draw()
    points = ax.transData.transform(np.column_stack([x, y]))
    taken: list[Any] = []
    frame = ax.get_window_extent()
    renderer = figure.canvas.get_renderer()  # type: ignore[attr-defined]
    others = [row for row in range(len(names)) if row not in first] if every else []
    for row in [*first, *others]:
        tried: list[tuple[float, int, Annotation, Any]] = []
        ups = (5, -12, 15, -22, 25, -32, 35)
        for dx, dy, side in [(dx, dy, side) for dy in ups for dx, side in ((7, "left"), (-7, "right"))]:  # fmt: skip
            text = ax.annotate(
                names[row], (x[row], y[row]), xytext=(dx, dy), textcoords="offset points", ha=side, fontsize=7.5,
                color="black" if row in first else GREY, path_effects=[withStroke(linewidth=2.5, foreground="white")],
                arrowprops={"arrowstyle": "-", "color": GREY, "linewidth": 0.5, "shrinkA": 0, "shrinkB": 2},
            )  # fmt: skip
            # The box of the words alone, without the line that leads to the point.
            text.update_positions(renderer)
            box = Text.get_window_extent(text, renderer)
            covered = sum(box.overlaps(other) for other in taken) * 3
            covered += int(sum(box.contains(px, py) for px, py in points))
            outside = box.x0 < frame.x0 or box.x1 > frame.x1 or box.y0 < frame.y0 or box.y1 > frame.y1
            tried.append((covered + 2 * outside, len(tried), text, box))
            if not tried[-1][0]:
                break
        cost, _, text, box = min(tried, key=lambda one: one[:2])
        for _, _, other, _ in tried:
            if other is not text or (cost and row not in first):
                other.remove()
        if not cost or row in first:
            taken.append(box)


@styled
def pareto(
    data: object,
    *,
    x: str = "wa_warm",
    y: str = "erases_deviation",
    by: str | Sequence[str] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Write amplification against wear, less of both being better: the points that no other one beats are joined and named.

    The others are named where there is room. ``y`` may be another column, such as ``erases_max``.
    """
    what = "plot.pareto"
    table = columns(data)
    need(table, what, x, y)
    groups = groups_of(table, differing(table, by, what))
    scales = [label_of(x)[1], label_of(y)[1]]
    ends = [[point(table, rows, name, what)[0] for rows in groups.values()] for name in (x, y)]
    right, up = (np.array(values) * scale for values, scale in zip(ends, scales, strict=True))
    names = list(groups)
    front = _front(right, up)
    ax = axes(ax, height=4.0)
    others = [row for row in range(len(names)) if row not in front]
    ax.plot(right[others], up[others], "o", color=GREY, markerfacecolor="white", label="another one is better in both")
    ax.plot(
        right[front], up[front], "-D", color="black", markerfacecolor=COLOURS[5], drawstyle="steps-post",
        linewidth=1.0, label="no other is better in both",
    )  # fmt: skip
    ax.set_xlabel(across(x))
    ax.set_ylabel(label_of(y)[0])
    ax.margins(0.16, 0.12)
    _annotate(ax, right, up, names, front, len(names) <= 16)
    if others:
        ax.legend(loc="lower left", bbox_to_anchor=(0, 1.0), ncols=2, borderaxespad=0)
    return ax


def _size(size: float) -> str:
    """Bytes, for people."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024 or unit == "GiB":
            return f"{size:g} {unit}" if size == int(size) else f"{size:.3g} {unit}"
        size /= 1024
    raise AssertionError


@styled
def cache(data: object, *, y: str = "misses", by: str | Sequence[str] = "scheme", ax: Axes | None = None) -> Axes:
    """What paging costs over the size of the page cache: rows of ``margay.vm`` or `margay vm replay` of several sizes.

    ``y`` is a column, such as ``misses``, ``migrations``, ``erases`` or ``io_us``.
    """
    what = "plot.cache"
    table = columns(data)
    sizes = numbers_of(table, what, "cache_frames") * numbers_of(table, what, "page_bytes")
    need(table, what, y)
    ax = axes(ax)
    _curves(table, ax, sizes, y, differing(table, by, what), what)
    ax.set_xscale("log", base=2)
    ticks = np.unique(sizes)
    ax.set_xticks(ticks if len(ticks) < 9 else ticks[:: len(ticks) // 6])
    ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_formatter(FuncFormatter(lambda size, _: _size(size)))
    ax.set_xlabel("Page cache")
    ax.set_ylim(bottom=0)
    legend(ax)
    return ax


@styled
def window(data: object, *, y: str = "gc_cost_us", by: str | Sequence[str] = "scheme", ax: Axes | None = None) -> Axes:
    """What paging costs over the number of log blocks that least-cost selection looks at: rows of several windows.

    ``all`` is the rightmost point, ``adaptive`` a horizontal line. ``y`` is a column, as for :func:`cache`.
    """
    what = "plot.window"
    table = columns(data)
    need(table, what, "window", y)
    text = [str(int(cell)) if isinstance(cell, float) and cell % 1 == 0 else str(cell) for cell in table["window"]]
    if missing := [cell for cell in text if not (cell.isdigit() or cell == "all" or cell.startswith("adaptive"))]:
        raise UsageError(f"{what}: the window {missing[0]} is neither a number of log blocks nor all nor adaptive")
    numbers = [float(cell) for cell in text if cell.isdigit()]
    if not numbers:
        raise UsageError(f"{what}: the table has no row with a window that is a number of log blocks")
    # One step to the right of the greatest number.
    rightmost = max(numbers) * 2
    fixed = np.array([cell.isdigit() or cell == "all" for cell in text])
    sizes = np.array([float(cell) if cell.isdigit() else rightmost for cell in text])
    ax = axes(ax)
    by = differing(table, by, what)
    _curves({name: cells[fixed] for name, cells in table.items()}, ax, sizes[fixed], y, by, what)
    adaptive = {name: cells[~fixed] for name, cells in table.items()}
    lines = {str(line.get_label()): line for line in ax.get_lines()}
    if (~fixed).any():
        for index, (name, rows) in enumerate(groups_of(adaptive, by).items()):
            value = float(np.mean(numbers_of(adaptive, what, y)[rows])) * label_of(y)[1]
            colour = lines[name].get_color() if name in lines else style_of(index)["color"]
            ax.axhline(value, color=colour, linestyle=(0, (1, 2)), linewidth=1.2, label=f"{name}, adaptive")
    ax.set_xscale("log", base=2)
    ticks = sorted({*numbers, *([rightmost] if "all" in text else [])})
    ax.set_xticks(ticks)
    ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_formatter(
        FuncFormatter(lambda size, _: "all" if "all" in text and size == rightmost else f"{size:g}")
    )
    if "all" in text and len(ticks) > 1:
        ax.axvline(float(np.sqrt(ticks[-2] * ticks[-1])), color=GREY, linewidth=0.6, linestyle=":")
    ax.set_xlabel("Window of least-cost selection (log blocks)")
    ax.set_ylim(bottom=0)
    legend(ax)
    return ax
