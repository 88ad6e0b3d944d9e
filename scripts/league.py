#!/usr/bin/env python3
"""The placement league: every pair of policies below on every workload below, by `margay sweep`, as tables and plots.

    scripts/league.py --margay target/release/margay --traces ../shared/traces --out out/league

Needs Python 3.11 and nothing else. Finished points are kept by `margay sweep`, so it goes on where it was stopped.
Writes OUT/league.csv (a row for each pair, workload and over-provisioning), OUT/league.md, and a plot for each workload.
"""

import argparse
import csv
import math
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

# Selection and placement as they were published together; the first one is what the others are compared with.
PAIRS = [
    ("greedy", "m1"),
    ("cost-benefit:shape=linear", "m1"),
    ("greedy", "m4"),
    ("cost-benefit:shape=linear", "m5"),
    ("cat", "m6"),
    ("cat", "dac"),
    ("cost-benefit:shape=sqrt", "sepgc"),
    ("cost-benefit:shape=sqrt", "dac"),
    ("cost-benefit:shape=sqrt", "eti"),
    ("cost-benefit:shape=sqrt", "mq"),
    ("cost-benefit:shape=sqrt", "sfr"),
    ("cost-benefit:shape=sqrt", "fadac"),
    ("cost-benefit:shape=sqrt", "warcip"),
    ("cost-benefit:shape=sqrt", "multilog"),
    ("cost-benefit:shape=sqrt", "sepbit"),
    ("lifetime", "lifetime"),
    ("grouped", "midas"),
    ("cost-benefit:shape=sqrt", "sfs"),
    ("cost-hotness", "sfs"),
    ("multilog", "multilog"),
    ("grouped", "dogi"),
]
# They take ten times as long as the others, and have one seed.
SLOW = [("cost-benefit:shape=sqrt", "sfs"), ("cost-hotness", "sfs"), ("multilog", "multilog"), ("grouped", "dogi")]
# They are told the future, and are bounds.
ORACLES = [("cost-benefit:shape=sqrt", "fk"), ("grouped", "nodap")]

WORKLOADS = [
    "random",
    "hot-cold:80/20",
    "hot-cold:90/10",
    "hot-cold:95/5",
    "hot-cold:99/1",
    "zipf:0.6",
    "zipf:0.8",
    "zipf:1",
    "zipf:1.2",
    "moving:90/10",
    "log:50/50",
    "log:30/70",
    "jedec-enterprise",
    "sequential",
]
TRACES = [
    "cloudphysics-sample.csv.zst",
    "sqlite-wal-ext4.blkparse.zst",
    "disksim-test70000.trace.zst",
    "hplajw-1week.csv.zst",
    "hadoop-eternity2.csv.zst",
    "tpcc-small.trace.zst",
    "wsrch-small.trace.zst",
]
OVER_PROVISIONING = [0.07, 0.10, 0.20, 0.30]
DEVICE = ["--flash-size", "1G", "--pages-per-segment", "256"]


def name_of(pair):
    return f"{pair[0]} + {pair[1]}"


def known(margay, kind):
    text = subprocess.run([margay, "policies", kind, "--markdown"], capture_output=True, text=True, check=True).stdout
    return {line.split("`")[1].split(":")[0] for line in text.splitlines() if line.startswith("| `")}


def sweep(args, pair, sources, options, output):
    command = [args.margay, "sweep", *sources, "-s", pair[0], "-p", pair[1], *options]
    command += ["--over-provisioning", ",".join(map(str, OVER_PROVISIONING)), "-o", str(output), "-q", "--force"]
    ended = subprocess.run(command, capture_output=True, text=True)
    if ended.returncode != 0:
        sys.exit(f"{' '.join(command)}\n{ended.stderr}")
    with output.open(newline="") as rows:
        return list(csv.DictReader(rows))


def run(args, pairs):
    """WA and the rest by pair, workload and over-provisioning."""
    points = defaultdict(list)
    points_dir = args.out / "points"
    points_dir.mkdir(parents=True, exist_ok=True)
    traces = [str(args.traces / trace) for trace in TRACES if (args.traces / trace).is_file()] if args.traces else []
    for number, pair in enumerate(pairs, 1):
        print(f"{number} of {len(pairs)}: {name_of(pair)}", file=sys.stderr)
        stem = name_of(pair).replace(":", "-").replace(" ", "").replace("=", "-")
        seeds = 1 if pair in SLOW else args.seeds
        options = [*DEVICE, "--device-writes", str(args.device_writes), "--seeds", str(seeds)]
        rows = sweep(args, pair, WORKLOADS, options, points_dir / f"{stem}-generated.csv")
        if traces:
            options = ["--size-from-trace", "--repeat", "5", "--seeds", "1"]
            rows += sweep(args, pair, traces, options, points_dir / f"{stem}-traces.csv")
        for row in rows:
            source = row["set.source"]
            if source not in WORKLOADS:
                source = Path(source).name.split(".")[0]
            points[pair, source, float(row["set.over-provisioning"])].append(row)
    return points


def number(row, key):
    return float(row[key]) if row.get(key) else math.nan


def summed_up(points):
    table = {}
    for key, rows in points.items():
        row = rows[0]
        table[key] = {
            "wa": number(row, "group_wa_warm"),
            "half95": number(row, "group_wa_warm_half95"),
            "erases_deviation": sum(number(row, "erases_deviation") for row in rows) / len(rows),
            "settled": all(row["settled"] == "true" for row in rows),
            "seeds": len(rows),
            "version": row["margay_version"],
        }
    return table


def gain_over(table, pair, base, sources, ops=OVER_PROVISIONING):
    """Geometric mean of (WA - 1) relative to that of `base`, over the points where both leave something to gain."""
    logs = []
    for source in sources:
        for op in ops:
            mine, theirs = table.get((pair, source, op)), table.get((base, source, op))
            if mine and theirs and theirs["wa"] > 1.005:
                logs.append(math.log(max(mine["wa"] - 1, 0.005) / (theirs["wa"] - 1)))
    return math.exp(sum(logs) / len(logs)) if logs else math.nan


def plot(path, title, label, least, series):
    """Lines over over-provisioning; `series` is a list of (name, points, is_oracle). The best six have names."""
    width, height, left, top, bottom, right = 980, 480, 60, 40, 50, 380
    most = max(wa for _, points, _ in series for _, wa in points)
    x = lambda op: left + (op - 0.05) / 0.27 * (width - left - right)
    y = lambda wa: height - bottom - (wa - least) / max(most - least, 0.01) * (height - top - bottom)
    colors = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000"]
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="13">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f'<text x="{left}" y="22" font-size="16">{title}</text>',
        f'<text x="{(left + width - right) / 2}" y="{height - 12}" text-anchor="middle">over-provisioning (spare / exported pages)</text>',
        f'<text transform="translate(16 {(top + height - bottom) / 2}) rotate(-90)" text-anchor="middle">{label}</text>',
    ]
    for op in OVER_PROVISIONING:
        out.append(f'<text x="{x(op):.1f}" y="{height - bottom + 18}" text-anchor="middle">{op:.0%}</text>')
    step = 10 ** math.floor(math.log10(max(most - least, 0.1)))
    step = step if (most - least) / step >= 3 else step / 2
    tick = least
    while tick <= most + 1e-9:
        out.append(f'<line x1="{left}" x2="{width - right}" y1="{y(tick):.1f}" y2="{y(tick):.1f}" stroke="#ddd"/>')
        out.append(f'<text x="{left - 6}" y="{y(tick) + 4:.1f}" text-anchor="end">{tick:.3g}</text>')
        tick += step
    ranked = sorted(series, key=lambda one: (one[2], sum(wa for _, wa in one[1])))
    shown = [one for one in ranked if not one[2]][: len(colors) - 1] + [one for one in ranked if one[2]]
    for one in ranked:
        if one not in shown:
            points = " ".join(f"{x(op):.1f},{y(wa):.1f}" for op, wa in one[1])
            out.append(f'<polyline points="{points}" fill="none" stroke="#ccc"/>')
    for at, one in enumerate(shown):
        color = "#777" if one[2] else colors[at % len(colors)]
        dash = ' stroke-dasharray="6 4"' if one[2] else ""
        points = " ".join(f"{x(op):.1f},{y(wa):.1f}" for op, wa in one[1])
        out.append(f'<polyline points="{points}" fill="none" stroke="{color}" stroke-width="2"{dash}/>')
        for op, wa in one[1]:
            out.append(f'<circle cx="{x(op):.1f}" cy="{y(wa):.1f}" r="3" fill="{color}"/>')
        line = top + 10 + 20 * at
        out.append(f'<line x1="{width - right + 15}" x2="{width - right + 40}" y1="{line}" y2="{line}" stroke="{color}" stroke-width="2"{dash}/>')
        out.append(f'<text x="{width - right + 46}" y="{line + 4}">{one[0]}{" (told the future)" if one[2] else ""}</text>')
    line = top + 10 + 20 * len(shown)
    out.append(f'<line x1="{width - right + 15}" x2="{width - right + 40}" y1="{line}" y2="{line}" stroke="#ccc"/>')
    out.append(f'<text x="{width - right + 46}" y="{line + 4}">all others</text>')
    path.write_text("\n".join([*out, "</svg>", ""]))


def write_pages(args, pairs, table):
    sources = list(dict.fromkeys(source for _, source, _ in table))
    present = [pair for pair in pairs if any(key[0] == pair for key in table)]
    rated = [pair for pair in present if pair not in ORACLES]
    base = ("cost-benefit:shape=sqrt", "sepbit")
    ranking = sorted(present, key=lambda pair: gain_over(table, pair, base, sources))
    version = next(iter(table.values()))["version"]
    page = [
        "# The placement league",
        "",
        f"Made by `scripts/league.py --traces ../shared/traces` with margay {version}; do not edit. Each pair of selection and placement on "
        "each workload, with its default parameters: write amplification (WA: pages programmed per page written by the host) without the "
        "transient (MSER-5), and half its 95 % interval.",
        "",
        f"* Generated workloads: 1 GiB of flash in segments of 256 pages of 4 KiB, written {args.device_writes:g} times; means over {args.seeds} seeds "
        "(one for those that take ten times as long: " + ", ".join(name_of(pair) for pair in SLOW) + ").",
        "* Traces: five passes, the device sized from the trace for each over-provisioning; one seed. They are small: a device of some dozens of "
        "segments is no SSD.",
        "* Over-provisioning is data pages / exported pages - 1. *Spread of erases* is the standard deviation of the segments' erase counts.",
        "* fk and nodap are told when each page will be written again; each is a bound for its own groups, not for everything.",
        "",
        "![All pairs over over-provisioning](figures/league-summary.svg)",
        "",
        "## Ranking",
        "",
        f"Geometric mean of (WA - 1) relative to {name_of(base)}, over {len(sources)} workloads and "
        f"{len(OVER_PROVISIONING)} over-provisionings; less is better. *Best* counts the points at which nothing that is not told the "
        "future has a lower WA, ties within the 95 % intervals included; *worst* is the point at which a pair is furthest from the best.",
        "",
        "| pair | generated | traces | all | best | worst: WA / best WA |",
        "|---|---|---|---|---|---|",
    ]
    generated = [source for source in sources if source in WORKLOADS]
    traces = [source for source in sources if source not in WORKLOADS]
    for pair in ranking:
        best, of, worst = 0, 0, (0.0, "")
        for source in sources:
            for op in OVER_PROVISIONING:
                mine = table.get((pair, source, op))
                others = [table[other, source, op] for other in rated if (other, source, op) in table]
                if not mine or not others:
                    continue
                least = min(others, key=lambda one: one["wa"])
                of += 1
                slack = (mine["half95"] if mine["half95"] == mine["half95"] else 0) + (
                    least["half95"] if least["half95"] == least["half95"] else 0
                )
                best += mine["wa"] <= least["wa"] + slack
                worst = max(worst, (mine["wa"] / least["wa"], f"{source}, {op:.0%}"))
        gains = [gain_over(table, pair, base, part) for part in (generated, traces, sources)]
        told = " (told the future)" if pair in ORACLES else ""
        page.append(
            f"| {name_of(pair)}{told} | {gains[0]:.3f} | {gains[1]:.3f} | {gains[2]:.3f} | {best} of {of} | {worst[0]:.2f} ({worst[1]}) |"
        )
    for source in sources:
        file = "league-" + source.replace(":", "-").replace("/", "-") + ".svg"
        series = []
        page += ["", f"## {source}", "", f"![WA over over-provisioning, {source}](figures/{file})", ""]
        page.append("| pair | " + " | ".join(f"{op:.0%}" for op in OVER_PROVISIONING) + " | spread of erases at 10 % |")
        page.append("|---|" + "---|" * (len(OVER_PROVISIONING) + 1))
        rows = []
        for pair in present:
            cells = [table.get((pair, source, op)) for op in OVER_PROVISIONING]
            if not all(cells):
                continue
            text = [
                f"{cell['wa']:.3f}"
                + (f" +-{cell['half95']:.3f}" if cell["half95"] == cell["half95"] else "")
                + ("" if cell["settled"] else " (unsettled)")
                for cell in cells
            ]
            rows.append((sum(cell["wa"] for cell in cells), f"| {name_of(pair)} | {' | '.join(text)} | {cells[1]['erases_deviation']:.2f} |"))
            series.append((name_of(pair), [(op, cell["wa"]) for op, cell in zip(OVER_PROVISIONING, cells)], pair in ORACLES))
        page += [row for _, row in sorted(rows)]
        plot(args.out / file, source, "write amplification, warm", 1.0, series)
    summary = [
        (name_of(pair), [(op, gain_over(table, pair, base, sources, [op])) for op in OVER_PROVISIONING], pair in ORACLES)
        for pair in present
    ]
    title, label = f"All workloads, relative to {name_of(base)}", "geometric mean of (WA - 1), relative"
    plot(args.out / "league-summary.svg", title, label, 0.0, summary)
    (args.out / "league.md").write_text("\n".join(page) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--margay", default="target/release/margay", help="the command")
    parser.add_argument("--traces", type=Path, help="folder of the shared traces; without it only generated workloads are run")
    parser.add_argument("--out", type=Path, default=Path("out/league"), help="folder to write to")
    parser.add_argument("--seeds", type=int, default=3, help="seeds of the generated workloads")
    parser.add_argument("--device-writes", type=float, default=12, help="times that the device is written")
    args = parser.parse_args()
    selections, placements = known(args.margay, "selection"), known(args.margay, "placement")
    pairs = []
    for pair in PAIRS + ORACLES:
        if pair[0].split(":")[0] in selections and pair[1].split(":")[0] in placements:
            pairs.append(pair)
        else:
            print(f"left out, because this margay does not know it: {name_of(pair)}", file=sys.stderr)
    table = summed_up(run(args, pairs))
    with (args.out / "league.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["selection", "placement", "workload", "over_provisioning", "wa_warm", "half95", "erases_deviation", "settled", "seeds"])
        for (pair, source, op), point in table.items():
            writer.writerow([*pair, source, op, point["wa"], point["half95"], point["erases_deviation"], point["settled"], point["seeds"]])
    write_pages(args, pairs, table)
    print(f"{args.out / 'league.md'}")


if __name__ == "__main__":
    main()
