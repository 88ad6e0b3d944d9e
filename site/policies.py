"""The page that explains each policy: its row of docs/policies.md, what its source says, and a picture of a real run."""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("agg")

import margay
import numpy as np
from margay import plot
from matplotlib import pyplot

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "crates/policy/src"
#: What all pictures were measured on: small, so that every segment is a row of the picture.
WORKLOAD = "hot-cold:90/10"
RUN = {
    "device": "ideal-1gb",
    "flash_size": "64M",
    "pages_per_segment": 64,
    "over_provisioning": 0.15,
    "device_writes": 8,
}
#: Policies that were published together, or make sense together only.
PLACEMENT_OF = {"cost-hotness": "sfs", "multilog": "multilog", "lifetime": "lifetime", "grouped": "midas"}
SELECTION_OF = {"midas": "grouped", "dogi": "grouped", "lifetime": "lifetime", "multilog": "multilog"}


@dataclass
class Row:
    """A line of a list of docs/policies.md."""

    name: str
    what: str
    parameters: str
    source: str


def lists() -> dict[str, list[Row]]:
    """The lists of docs/policies.md, which `margay policies --markdown` writes from the registry, by their headings."""
    found: dict[str, list[Row]] = {}
    heading = ""
    for line in (ROOT / "docs/policies.md").read_text().splitlines():
        if line.startswith("## "):
            heading = line[3:]
        elif line.startswith("| `"):
            name, what, parameters, source = (cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:5])
            found.setdefault(heading, []).append(Row(name.strip("`"), what, parameters, source))
    return found


def _documented(text: str) -> dict[str, str]:
    """The comments of the types of a file of Rust."""
    found = re.findall(
        r"((?:^///.*\n)+)(?:#\[.*\]\n)*(?:pub(?:\(\w+\))? )?(?:struct|enum) (\w+)", text, flags=re.MULTILINE
    )
    return {name: re.sub(r"^/// ?", "", comment, flags=re.MULTILINE) for comment, name in found}


def explanation(kind: str, name: str) -> str:
    """What the source says of a policy: the comment of the type that its row builds."""
    if name == "none":
        return ""
    for path in [*sorted((SOURCES / kind).rglob("*.rs")), *SOURCES.glob(f"{kind}.rs")]:
        text = path.read_text()
        row = re.search(
            rf'Row(?:<\w+>)?(?: =)? {{\s*name: "{re.escape(name)}",.*?^\s*}}[;,]?$',
            text,
            flags=re.DOTALL | re.MULTILINE,
        )
        if row is None:
            continue
        comments = _documented(text)
        named = [comment for of, comment in comments.items() if re.search(rf"\b{of}\b", row[0])]
        said = max(named or list(comments.values()), key=len, default="")
        # Links of rustdoc are names here.
        return re.sub(r"\[(`[^`\]]+`)\](?!\()", r"\1", said).strip()
    return ""


def _run(selection: str, placement: str, **more: Any) -> margay.Result:
    result: margay.Result = margay.simulate(WORKLOAD, selection=selection, placement=placement, **{**RUN, **more})
    return result


def _two() -> Any:
    figure, axes = pyplot.subplots(1, 2, figsize=(8.6, 3.1), layout="constrained")
    return figure, axes


def _saved(figure: Any, path: Path) -> None:
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def _said(result: margay.Result) -> str:
    row = result.row
    policies = f"`{row['selection']}` with `{row['placement']}`"
    wear = f"standard deviation of the erases {row['erases_deviation']:.1f}"
    return f"{policies}: write amplification {row['wa_warm']:.2f}, {wear}"


def draw_selection(name: str, path: Path) -> str:
    """How full its victims are, and which segments are emptying. Returns what is seen."""
    placement = PLACEMENT_OF.get(name, "m1")
    result = _run(name, placement)
    figure, (left, right) = _two()
    if name == "greedy":
        plot.victims({"greedy": result, "random": _run("random", placement)}, ax=left)
    else:
        plot.victims({name: result, "greedy": _run("greedy", placement)}, ax=left)
    plot.segments(result, of="valid", ax=right)
    _saved(figure, path)
    return f"{_said(result)}. Left: how full victims were; right: the valid pages of each segment over the run."


def _streams(result: margay.Result, ax: Any) -> None:
    """How full the segments of each stream are in the second half of the run."""
    maps = plot.maps(result)
    late = (maps["host_writes"] > result.row["host_writes"] / 2) & (maps["stream"] != 255)
    streams, valid = maps["stream"][late], maps["valid"][late] * 100
    known = np.unique(streams)
    boxes = ax.boxplot(
        [valid[streams == stream] for stream in known],
        tick_labels=[f"{stream}\n{np.mean(streams == stream) * 100:.0f} %" for stream in known],
        whis=(5, 95), showfliers=False, patch_artist=True, widths=0.6,
    )  # fmt: skip
    for box, median in zip(boxes["boxes"], boxes["medians"], strict=True):
        box.set(facecolor="#9ccbe6", edgecolor="black")
        median.set(color="black", linewidth=1.6)
    ax.set_ylim(0, 102)
    ax.set_xlabel("Stream, and its share of the segments in use")
    ax.set_ylabel("Valid pages of its segments (%)")
    ax.grid(axis="x", visible=False)


def draw_placement(name: str, path: Path) -> str:
    """Where its streams lie, and how full their segments are. Returns what is seen."""
    result = _run(SELECTION_OF.get(name, "cost-benefit"), name)
    figure, (left, right) = _two()
    with pyplot.rc_context({"axes.spines.top": False, "axes.spines.right": False}):
        _streams(result, left)
    plot.segments(result, of="stream", ax=right)
    _saved(figure, path)
    seen = "Left: how full the segments of each stream are (box: half of them, line: 90 %); right: the stream of each segment."
    return f"{_said(result)}. {seen}"


def draw_leveling(name: str, path: Path) -> str:
    """The wear of segments beside that without leveling. Returns what is seen."""
    # The defaults are for a whole life; a run of some dozen erases needs bounds that it reaches.
    spec = {"threshold": "threshold:spread=12", "swap": "swap:from=30,rest=5,gap=8"}.get(name, name)
    results = {"none": _run("cost-benefit", "sepgc", device_writes=20)}
    if name != "none":
        results = {spec: _run("cost-benefit", "sepgc", leveling=spec, device_writes=20), **results}
    result = next(iter(results.values()))
    figure, (left, right) = _two()
    plot.wear(results, ax=left)
    plot.segments(result, of="erases", ax=right)
    _saved(figure, path)
    leveled = "" if name == "none" else f", leveled by `{spec}`"
    return f"{_said(result)}{leveled}. Left: erases of the segments after 20 device writes; right: over the run."


DRAWN = {"Selection": draw_selection, "Placement": draw_placement, "Leveling": draw_leveling}
#: Lists that no run of the laboratory's disk shows, with the picture of the study that has them.
STUDIED = {
    "Allocators": (
        "../docs/figures/moda-fig11-allocators.svg",
        "Seconds of cleaning after ten benchmarks under each allocator",
    ),
    "Schemes": (
        "schemes.png",
        "Time of the merges of a sort (samples/sort.vmt.zst) with a cache of 1 MiB under each scheme",
    ),
    "Mappings": ("mappings.png", "Time of all flash work of the same sort under each mapping, in scheme du-gc"),
    "Replacement": (
        "replacement.png",
        "Time of all flash work of the same sort with each replacement, in scheme du-gc",
    ),
}


def draw_paging(folder: Path, files: dict[str, bytes]) -> None:
    """The schemes, mappings and replacements of paging beside each other."""
    sort = ROOT / "samples/sort.vmt.zst"

    def rows(**options: Any) -> list[dict[str, Any]]:
        return list(margay.vm.replay(sort, cache="1M", **options).rows())

    mappings = [row for name in ("bast", "fast") for row in rows(scheme="du-gc", store=name)]
    replacements = [row for name in ("lru", "clean-first") for row in rows(scheme="du-gc", replacement=name)]
    drawn = {
        "schemes": (rows(), "gc_cost_us", "scheme"),
        "mappings": (mappings, "io_us", "store"),
        "replacement": (replacements, "io_us", "replacement"),
    }
    for name, (table, y, by) in drawn.items():
        path = folder / f"{name}.png"
        _saved(plot.comparison(table, y=y, by=by).figure, path)
        files[f"policies/{path.name}"] = path.read_bytes()


def _section(kind: str, row: Row, folder: Path, files: dict[str, bytes]) -> str:
    text = f"### {row.name}\n\n{row.what[0].upper()}{row.what[1:]}.\n\n"
    if kind in DRAWN:
        picture = folder / f"{kind.lower()}-{row.name}.png"
        said = DRAWN[kind](row.name, picture)
        files[f"policies/{picture.name}"] = picture.read_bytes()
        text += f"![{row.name}: {row.what}]({picture.name})\n\n{said}\n\n"
    if row.parameters:
        text += "Parameters: " + row.parameters + ".\n\n"
    if said := explanation(kind.lower().rstrip("s") if kind == "Allocators" else kind.lower(), row.name):
        text += said + "\n\n"
    if row.source:
        text += f"Source: {row.source}.\n\n"
    return text


def pages(made: Path) -> dict[str, str | bytes]:
    """The page, and its pictures: those of the last time, if nothing that they show has changed since then."""
    folder = made / "policies"
    package = sorted(Path(str(margay.__file__)).parent.glob("*.*"))
    sources = [Path(__file__), ROOT / "docs/policies.md", *sorted(SOURCES.rglob("*.rs")), *package]
    key = sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()
    page, kept = folder / "index.md", folder / "key"
    if kept.is_file() and kept.read_text() == key:
        return {f"policies/{path.name}": path.read_bytes() for path in [*folder.glob("*.png"), page]}
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    files: dict[str, bytes] = {}
    text = (
        "# Policies, explained\n\n"
        "What each policy does, as its source says it, with a picture of a run of it. All runs: "
        f"`{WORKLOAD}` ({RUN['device_writes']} device writes) on 64 MiB of flash in segments of {RUN['pages_per_segment']} "
        f"pages, over-provisioning {RUN['over_provisioning']:.0%}. It is one workload: "
        "[the league](../docs/league.md) has others, and [the lists](../docs/policies.md) all names.\n\n"
    )
    draw_paging(folder, files)
    for heading, rows in lists().items():
        kind = heading.split(":")[0].split(" ")[0]
        if kind not in DRAWN and kind not in STUDIED:
            continue
        text += f"## {heading}\n\n"
        if kind in STUDIED:
            picture, what = STUDIED[kind]
            more = "reproduction.md" if kind == "Allocators" else "paging.md"
            text += f"![{what}]({picture})\n\n{what}; [more](../docs/{more}).\n\n"
        text += "".join(_section(kind, row, folder, files) for row in rows)
    page.write_text(text)
    kept.write_text(key)
    return {"policies/index.md": text, **files}
