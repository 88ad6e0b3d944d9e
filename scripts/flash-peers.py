#!/usr/bin/env python3
"""What scripts/flash-peers.sh measured, as tables.

    scripts/flash-peers.py table WITH_WHAT ROW_FILE...    writes out/flash-peers.csv, out/flash-peers.md and the tables in docs/mtd-peers.md
    scripts/flash-peers.py check ROW_FILE...              exits with 1 if the counters are wrong or a run is impossible

A row is a line of `row: name=value name=value ...`, as scripts/guest/peers.sh says it.
"""
import csv
import pathlib
import statistics
import sys

CHIPS = {
    "nand-2k": "NAND, pages of 2 KiB with 64 spare bytes, segments of 128 KiB",
    "nand-4k": "NAND, pages of 4 KiB with 128 spare bytes, segments of 256 KiB",
    "nor": "NOR, segments of 128 KiB",
}
CONTENTS = {
    "random": "content that cannot be compressed",
    "half": "half of each page is zeros",
}
PEERS = {
    "ubifs": "UBIFS",
    "jffs2": "JFFS2",
    "f2fs": "f2fs on mtdblock (no leveling, no bad segments)",
    "margay-files": "margay, its file system",
    "margay-ext4": "margay's disk with ext4",
    "margay-f2fs": "margay's disk with f2fs",
}
BEGIN, END = "<!-- tables: made by scripts/flash-peers.sh, do not edit -->", "<!-- end of the tables -->"
DOCUMENT = pathlib.Path("docs/mtd-peers.md")


def read(path):
    words = pathlib.Path(path).read_text().split()
    return dict(word.split("=", 1) for word in words if "=" in word)


def spread(row):
    """The standard deviation of the erases of segments."""
    segments, erases = int(row["segments"]), int(row["erases"])
    return (int(row["erases_squared"]) / segments - (erases / segments) ** 2) ** 0.5


def figure(values, digits):
    """The mean, and between which values it lies if that shows."""
    mean = f"{statistics.mean(values):,.{digits}f}"
    low, high = f"{min(values):,.{digits}f}", f"{max(values):,.{digits}f}"
    return mean if low == high else f"{mean} ({low}..{high})"


COLUMNS = {
    "room, MiB": lambda row: (int(row["room_kib"]) / 1024, 1),
    "filling: programmed / written": lambda row: (int(row["fill_programmed"]) / int(row["fill_written"]), 2),
    "programmed / written": lambda row: (int(row["programmed"]) / int(row["written"]), 2),
    "erases": lambda row: (int(row["erases"]), 0),
    "of a segment: mean": lambda row: (int(row["erases"]) / int(row["segments"]), 2),
    "standard deviation": lambda row: (spread(row), 2),
    "max": lambda row: (int(row["erases_max"]), 0),
    "mount: pages read": lambda row: None if row["mount_reads"] == "-" else (int(row["mount_reads"]), 0),
    "s": lambda row: (float(row["mount_seconds"]), 2),
    "memory, KiB": lambda row: (int(row["memory_kib"]), 0),
    "margay's RSS, KiB": lambda row: None if row["resident_kib"] == "-" else (int(row["resident_kib"]), 0),
    "code, KiB": lambda row: (int(row["code_kib"]), 0),
    "work, s": lambda row: (float(row["work_seconds"]), 0),
}


def named(row):
    return PEERS[row["peer"]] + (" (pairs of pages)" if row["layout"] == "pairs" else "")


def tables(rows, with_what):
    lines = [f"With {with_what}.", ""]
    groups = {}
    for row in rows:
        groups.setdefault((row["chip"], int(row["mib"]), row["content"], int(row["data"])), []).append(row)
    for (chip, mib, content, data), group in groups.items():
        lines += [f"**{CHIPS[chip]}; {mib} MiB; {data / 1e6:g} MB in files, {CONTENTS[content]}**", ""]
        lines += ["| | " + " | ".join(COLUMNS) + " |", "|---|" + "---:|" * len(COLUMNS)]
        for name in dict.fromkeys(map(named, group)):
            cells = []
            for value in COLUMNS.values():
                found = [value(row) for row in group if named(row) == name]
                cells.append("" if None in found else figure([each[0] for each in found], found[0][1]))
            lines.append(f"| {name} | " + " | ".join(cells) + " |")
        lines.append("")
    return lines


def table(with_what, paths):
    rows = [read(path) for path in paths]
    out = pathlib.Path("out")
    out.mkdir(exist_ok=True)
    with (out / "flash-peers.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, ["with", *rows[0]])
        writer.writeheader()
        writer.writerows({"with": with_what, **row} for row in rows)
    text = "\n".join(tables(rows, with_what))
    (out / "flash-peers.md").write_text(text)
    before, rest = DOCUMENT.read_text().split(BEGIN)
    DOCUMENT.write_text(before + BEGIN + "\n\n" + text + "\n" + END + rest.split(END)[1])
    print(f"out/flash-peers.csv, out/flash-peers.md, {DOCUMENT}")


def faults(row):
    """What is wrong with a row."""
    due = [name.removesuffix("_due") for name in row if name.endswith("_due")]
    if not due and "written" not in row:
        yield "it says neither what was counted nor what was written"
    for name in due:
        # Not every simulator says itself what was done with it.
        for found in [name] + [f"{name}_said"] * (f"{name}_said" in row):
            if row.get(found) != row[f"{name}_due"]:
                yield f"{found} is {row.get(found, 'missing')} instead of {row[f'{name}_due']}"
    if "written" in row and int(row["programmed"]) < int(row["written"]):
        yield "less was programmed than was written, of content that cannot be compressed"
    if row.get("differing", "0") != "0":
        yield f"{row['differing']} files are not as they were synced"


def main():
    if sys.argv[1:2] == ["check"]:
        wrong = [f"{path}: {fault}" for path in sys.argv[2:] for fault in faults(read(path))]
        sys.exit("\n".join(wrong) or 0)
    if sys.argv[1:2] != ["table"] or len(sys.argv) < 4:
        sys.exit(__doc__)
    table(sys.argv[2], sys.argv[3:])


if __name__ == "__main__":
    main()
