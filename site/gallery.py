"""The pictures of docs/pictures.md: `target/venv/bin/python site/gallery.py` draws them anew into docs/figures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("agg")

import margay
from margay import plot
from matplotlib import pyplot

ROOT = Path(__file__).resolve().parent.parent
CARD: dict[str, Any] = {"device": "intel-series2plus-24mb", "device_writes": 10}
PAIRS: dict[str, Any] = {"selection": ["greedy", "cost-benefit"], "placement": ["m1", "sepgc", "dac"]}
SORT = ROOT / "samples/sort.vmt.zst"


def paging(option: str, values: list[str], **more: Any) -> list[dict[str, Any]]:
    """Rows of a sort on flash with each of these values of an option."""
    return [row for value in values for row in margay.vm.replay(SORT, **{option: value}, **more).rows()]


def main() -> None:
    """Draw all."""
    source = "hot-cold:90/10"
    grid = margay.sweep(source, over_provisioning="0.10..0.30:0.05", seeds=3, **PAIRS, **CARD)
    pairs = margay.compare(source, over_provisioning=0.15, seeds=3, **CARD)
    plain = margay.simulate(source, selection="greedy", **CARD)
    apart = margay.simulate(source, selection="cat", placement="dac", **CARD)
    caches = paging("cache", ["512K", "1M", "2M", "4M"], scheme=["du-gc", "da-gc", "lda-gc1", "lda-gc5", "ba-gc"])
    windows = paging("window", ["1", "2", "4", "8", "16", "32", "all"], cache="1M", scheme=["lda-gc1", "lda-gc5"])
    pictures = {
        "write-amplification": plot.write_amplification(grid),
        "comparison": plot.comparison(pairs, shown=12),
        "pareto": plot.pareto(pairs),
        "wear": plot.wear([plain, apart]),
        "segments": plot.segments(apart),
        "victims": plot.victims([plain, apart]),
        "uniformity": plot.uniformity(apart),
        "cache": plot.cache(caches, y="gc_cost_us"),
        "window": plot.window(windows),
    }
    for name, ax in pictures.items():
        figure = ax.figure.get_figure(root=True)
        assert figure is not None
        figure.savefig(ROOT / f"docs/figures/plot-{name}.png", dpi=110, metadata={"Software": None})
    pyplot.close("all")


if __name__ == "__main__":
    main()
