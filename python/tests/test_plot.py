from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import margay
import matplotlib
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from matplotlib.collections import QuadMesh
from matplotlib.figure import Figure

matplotlib.use("agg")

from margay import plot
from matplotlib import pyplot

SMALL: dict[str, Any] = {"device": "spi-nor-16mb", "device_writes": 4}
SOURCE = "hot-cold:90/10"


@pytest.fixture(autouse=True)
def close_figures() -> Iterator[None]:
    """Every picture is laid out and drawn without a warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield
        for number in pyplot.get_fignums():
            pyplot.figure(number).canvas.draw()
    pyplot.close("all")


@pytest.fixture(scope="module")
def result() -> margay.Result:
    run: margay.Result = margay.simulate(SOURCE, **SMALL)
    return run


@pytest.fixture(scope="module")
def pairs() -> margay.Results:
    return margay.compare(SOURCE, selection=["greedy", "cat"], placement=["m1", "sepgc"], seeds=2, **SMALL)


@pytest.fixture(scope="module")
def grid() -> margay.Sweep:
    spare = [0.12, 0.2, 0.3]
    return margay.sweep(SOURCE, over_provisioning=spare, selection=["greedy", "cat"], seeds=2, **SMALL)


TABLES: list[Callable[[Any], Any]] = [
    lambda table: table,
    lambda table: pl.DataFrame(table),
    lambda table: pd.DataFrame(table.rows()),
    lambda table: pa.table(table),
    lambda table: table.rows(),
    lambda table: {name: table[name] for name in table.columns},
]


@pytest.mark.parametrize("of", TABLES)
def test_tables_of_all_libraries_give_the_same_lines(grid: margay.Sweep, of: Callable[[Any], Any]) -> None:
    ax = plot.write_amplification(of(grid.table))
    lines = {str(line.get_label()): line for line in ax.get_lines()}
    assert list(lines) == ["greedy", "cat"]
    for name, line in lines.items():
        rows = [row for row in grid.table.rows() if row["selection"].startswith(name)]
        assert list(np.asarray(line.get_xdata())) == pytest.approx([12, 20, 30], rel=0.01)
        means = [row["group_wa_warm"] for row in rows[::2]]
        assert list(np.asarray(line.get_ydata())) == pytest.approx(means)
    assert len(ax.collections) == 2, "a band for each line"
    assert "(% of the exported pages)" in ax.get_xlabel()
    assert "pages programmed / pages written" in ax.get_ylabel()


def test_lines_differ_without_colour(pairs: margay.Results) -> None:
    points = [{"x": x, "y": x * at, "name": f"line {at}"} for at in range(1, 12) for x in (1, 2)]
    ax = plot.write_amplification(points, x="x", y="y", by="name")
    styles = {(line.get_marker(), str(line._dash_pattern), line.get_markerfacecolor()) for line in ax.get_lines()}  # type: ignore[attr-defined]
    assert len(styles) == 11


def test_columns_without_intervals_have_the_range_of_the_seeds(grid: margay.Sweep) -> None:
    ax = plot.write_amplification(grid, y="forecast.tbw_mean", by="selection")
    rows = [row for row in grid.table.rows() if row["selection"] == "greedy"][:2]
    ends = [row["forecast.tbw_mean"] for row in rows]
    band = ax.collections[0].get_paths()[0].vertices
    first = np.asarray(band)[np.isclose(np.asarray(band)[:, 0], ax.get_lines()[0].get_xdata()[0])]  # type: ignore[index]
    assert (first[:, 1].min(), first[:, 1].max()) == pytest.approx((min(ends), max(ends)))


def test_bars_are_sorted_and_hatched_where_nothing_is_certain() -> None:
    rows = [
        {"selection": name, "placement": "m1", "wa_warm": wa, "wa_warm_half95": half}
        for name, wa, half in [("b", 3.0, 0.1), ("a", 2.0, 0.2), ("c", 2.3, 0.2), ("d", 2.5, None)]
    ]
    ax = plot.comparison(rows)
    assert [label.get_text() for label in ax.get_yticklabels()] == ["a", "c", "d", "b"]
    bars = {round(bar.get_y() + bar.get_height() / 2): bar for bar in ax.patches}  # type: ignore[attr-defined]
    ends = [bars[at].get_path().get_extents().transformed(bars[at].get_patch_transform()).x1 for at in range(4)]
    assert ends == pytest.approx([2.0, 2.3, 2.5, 3.0])
    assert [bool(bars[at].get_hatch()) for at in range(4)] == [False, True, False, False]
    assert "the first 2 of 4" in plot.comparison(rows, shown=2).get_xlabel()


def test_policies_keep_the_parameters_that_tell_them_apart() -> None:
    names = ["cat:shape=sqrt,scale=1d", "dac:regions=4,threshold=0.5d", "dac:regions=8,threshold=4d"]
    ax = plot.comparison([{"selection": name, "wa_warm": at + 1.0} for at, name in enumerate(names)])
    assert [label.get_text() for label in ax.get_yticklabels()] == ["cat", "dac:regions=4", "dac:regions=8"]


def test_the_front_has_what_nothing_beats(pairs: margay.Results) -> None:
    places = {"a": (1, 5), "b": (2, 2), "c": (2, 3), "d": (3, 1), "e": (4, 4)}
    table = [{"name": name, "wa_warm": x, "erases_deviation": y} for name, (x, y) in places.items()]
    ax = plot.pareto(table, by="name")
    others, front = ax.get_lines()
    assert list(np.asarray(front.get_xdata())) == [1, 2, 3]
    assert list(np.asarray(others.get_xdata())) == [2, 4]
    assert {"a", "b", "d"} <= {text.get_text() for text in ax.texts}
    assert len(np.asarray(plot.pareto(pairs).get_lines()[1].get_xdata())) >= 1


def test_wear_counts_every_segment_once(result: margay.Result) -> None:
    ax = plot.wear(result)
    values, edges = ax.patches[0].get_data()[:2]  # type: ignore[attr-defined]
    assert values.sum() == 256
    erases = result.segments["erases"]
    assert edges[0] <= erases.min()
    assert erases.max() <= edges[-1]
    of_json = plot.wear(json.loads(result.to_json())).patches[0].get_data()[0]  # type: ignore[attr-defined]
    assert list(of_json) == list(values)
    several = plot.wear({"one": result, "table": pl.DataFrame(result.segments)})
    assert "one: mean" in several.get_legend().get_texts()[0].get_text()  # type: ignore[union-attr]


def test_victims_are_shares_of_all_victims(result: margay.Result) -> None:
    ax = plot.victims(result)
    assert ax.patches[0].get_data()[0].sum() == pytest.approx(100)  # type: ignore[attr-defined]
    mean = result.row["victim_utilization"] * 100
    assert f"mean {mean:.0f} %" in ax.get_title(loc="left")


def test_uniformity_has_the_series(result: margay.Result) -> None:
    ax = plot.uniformity(result)
    assert list(np.asarray(ax.get_lines()[1].get_ydata())) == pytest.approx(result.series["uniformity"] * 100)
    assert np.asarray(ax.get_lines()[0].get_xdata())[-1] == pytest.approx(4)
    assert "pages" in plot.uniformity(pl.DataFrame(result.series)).get_xlabel()


@pytest.mark.parametrize("of", ["erases", "valid", "stream"])
def test_maps_of_segments_end_as_the_run_ended(result: margay.Result, of: str) -> None:
    mesh = next(one for one in plot.segments(result, of=of).collections if isinstance(one, QuadMesh))
    last = np.ma.masked_array(mesh.get_array())[:, -1]  # type: ignore[arg-type]
    if of == "erases":
        assert list(last) == list(result.segments["erases"])
    elif of == "valid":
        used = last.filled(0).mean() / 100
        assert used == pytest.approx(result.row["utilization"], abs=0.02)
    maps = pl.DataFrame(plot.maps(result))
    assert len(maps) == 256 * maps["host_writes"].n_unique()
    again = next(one for one in plot.segments(maps, of=of).collections if isinstance(one, QuadMesh))
    assert np.ma.allequal(again.get_array(), mesh.get_array())  # type: ignore[arg-type]


def test_curves_of_paging_have_the_sizes_of_cache_and_window(root: Any) -> None:
    trace = root / "samples/sort.vmt.zst"
    scheme = ["du-gc", "lda-gc1"]
    caches = [row for cache in ("512K", "1M") for row in margay.vm.replay(trace, cache=cache, scheme=scheme).rows()]
    ax = plot.cache(caches, y="io_us")
    assert [label.get_text() for label in ax.get_xticklabels()] == ["512 KiB", "1 MiB"]
    wanted = [row["io_us"] / 1e6 for row in caches if row["scheme"] == "LDA-GC1"]
    assert list(np.asarray(ax.get_lines()[1].get_ydata())) == pytest.approx(wanted)
    windows = [
        row
        for window in ("1", "8", "all", "adaptive")
        for row in margay.vm.replay(trace, cache="1M", window=window, scheme="lda-gc1").rows()
    ]
    ax = plot.window(windows)
    assert [label.get_text() for label in ax.get_xticklabels()] == ["1", "8", "all"]
    assert [str(line.get_label()) for line in ax.get_lines()][:2] == ["LDA-GC1", "LDA-GC1, adaptive"]


def test_a_picture_goes_where_it_is_told_and_leaves_the_style_alone(result: margay.Result) -> None:
    before = dict(matplotlib.rcParams)
    figure, both = pyplot.subplots(1, 2)
    assert plot.wear(result, ax=both[0]) is both[0]
    assert isinstance(figure, Figure)
    assert len(pyplot.get_fignums()) == 1
    assert dict(matplotlib.rcParams) == before


@pytest.mark.parametrize(
    ("draw", "told"),
    [
        (lambda _: plot.write_amplification([{"wa_warm": 1.0}]), "needs the column over_provisioning"),
        (lambda _: plot.comparison([{"selection": "a", "wa_warm": "low"}]), "wa_warm is no column of numbers"),
        (lambda _: plot.comparison([]), "the table has no rows"),
        (lambda _: plot.pareto(7), "expected a table, or results of margay, not int"),
        (lambda _: plot.comparison(["a"]), "expected results or rows"),
        (lambda _: plot.wear([]), "the list is empty"),
        (lambda run: plot.segments(run, of="wear"), "expected one of erases, valid, stream"),
        (lambda run: plot.segments(margay.Result.from_json(run.to_json())), "was read from JSON"),
        (lambda _: plot.victims({"valid_pages": [0, 1], "victims": [0, 0]}), "nothing was cleaned"),
        (lambda _: plot.window([{"scheme": "a", "window": "all", "gc_cost_us": 1.0}]), "no row with a window"),
        (lambda _: plot.window([{"scheme": "a", "window": w, "gc_cost_us": 1.0} for w in (1, None)]), "the window nan"),
    ],
)
def test_what_cannot_be_drawn_is_named(result: margay.Result, draw: Callable[[Any], Any], told: str) -> None:
    with pytest.raises(margay.UsageError, match=told):
        draw(result)
