from __future__ import annotations

import json
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import margay
import numpy as np
import pytest
from helpers import Run, timeless
from margay import _options

# Words of the command, and the keywords that say the same.
SHARED: list[tuple[list[str], str, dict[str, Any]]] = [
    (["-d", "spi-nor-16mb", "--device-writes", "2"], "hot-cold:90/10", {"device": "spi-nor-16mb", "device_writes": 2}),
    (
        [
            "-s",
            "cat",
            "-p",
            "m6",
            "-d",
            "spi-nand-24mb",
            "--over-provisioning",
            "0.2",
            "--writes",
            "60000",
            "--seed",
            "7",
        ],
        "zipf:0.99",
        {
            "selection": "cat",
            "placement": "m6",
            "device": "spi-nand-24mb",
            "over_provisioning": 0.2,
            "writes": 60000,
            "seed": 7,
        },
    ),
    (
        ["--repeat", "3", "-s", "lifetime", "-p", "lifetime"],
        "SQLITE",
        {"repeat": 3, "selection": "lifetime", "placement": "lifetime"},
    ),
    (
        "-s d-choices:d=4 --leveling threshold --max-pages-per-write 8 --separate-read-only".split()
        + "-d spi-nor-16mb --device-writes 3 --warm-up 0.5".split(),
        "log:50/50",
        {
            "selection": "d-choices:d=4",
            "leveling": "threshold",
            "max_pages_per_write": 8,
            "separate_read_only": True,
            "device": "spi-nor-16mb",
            "device_writes": 3.0,
            "warm_up": 0.5,
        },
    ),
]


def source_of(root: Path, source: str) -> str:
    return str(root / "samples/sqlite-messages.mgt") if source == "SQLITE" else source


@pytest.mark.parametrize(("words", "source", "options"), SHARED)
def test_a_run_has_the_row_of_the_command_to_the_last_bit(
    rows_of: Callable[..., list[dict[str, Any]]], root: Path, words: list[str], source: str, options: dict[str, Any]
) -> None:
    source = source_of(root, source)
    result = margay.simulate(source, **options)
    assert [timeless(result.row)] == rows_of("replay", source, *words)


def test_the_json_of_a_result_is_the_command_s(run: Run) -> None:
    words = ["hot-cold:90/10", "-d", "spi-nor-16mb", "--device-writes", "2"]
    said = json.loads(run("replay", *words, "-q", "-f", "json").stdout)
    mine = json.loads(margay.simulate("hot-cold:90/10", device="spi-nor-16mb", device_writes=2).to_json())
    said["row"], mine["row"] = timeless(said["row"]), timeless(mine["row"])
    assert mine == said


def test_runs_with_several_seeds_and_comparisons_have_the_rows_of_the_command(
    rows_of: Callable[..., list[dict[str, Any]]],
) -> None:
    words = ["hot-cold:90/10", "-d", "spi-nor-16mb", "--device-writes", "2"]
    seeds = margay.simulate("hot-cold:90/10", device="spi-nor-16mb", device_writes=2, seeds=3, jobs=2)
    assert [timeless(one.row) for one in seeds] == rows_of("replay", *words, "--seeds", 3)
    options: dict[str, Any] = {"device": "spi-nor-16mb", "device_writes": 2, "seeds": 2}
    results = margay.compare(
        "hot-cold:90/10", selection=["greedy", "cat:shape=sqrt,scale=2d"], placement="m1,m6", **options
    )
    wanted = rows_of("compare", *words, "-s", "greedy", "-s", "cat:shape=sqrt,scale=2d", "-p", "m1,m6", "--seeds", 2)
    assert [timeless(one.row) for one in results] == wanted
    assert len(results) == 8
    assert results[-1].row == results[7].row
    assert results.advice


def test_a_sweep_has_the_rows_of_the_command_and_goes_on_with_its_points(run: Run, tmp_path: Path) -> None:
    output = tmp_path / "rows.json"
    words = [
        "random",
        "-d",
        "spi-nor-16mb",
        "--device-writes",
        "1",
        "--over-provisioning",
        "0.1..0.3:0.1",
        "-s",
        "greedy,cat",
    ]
    run("sweep", *words, "--seeds", 2, "-q", "-f", "json", "-o", output)
    wanted = json.loads(output.read_text())
    options: dict[str, Any] = {"device": "spi-nor-16mb", "device_writes": 1, "selection": ["greedy", "cat"], "seeds": 2}
    swept = margay.sweep("random", over_provisioning="0.1..0.3:0.1", **options)
    assert swept.table.rows() == wanted
    assert len(swept) == 12
    assert swept.names[0] == "over-provisioning = 0.1, selection = greedy, seed = 1"
    # The command's file of finished points is one of Python's.
    began = time.monotonic()
    again = margay.sweep("random", over_provisioning=[0.1, 0.2, 0.3], finished=f"{output}.points", **options)
    assert again.table.rows() == wanted, time.monotonic() - began


def test_points_of_a_grid_are_run_one_by_one_to_the_same_table() -> None:
    options: dict[str, Any] = {"device": "spi-nor-16mb", "device_writes": 1, "utilization": [0.7, 0.8], "seeds": 1}
    grid = margay.grid("random", **options)
    rows = [grid.run(at) for at in range(len(grid))]
    assert grid.table(rows).rows() == margay.sweep("random", **options).table.rows()
    assert len({grid.key(at) for at in range(len(grid))}) == len(grid) == 2
    assert len(grid.table([rows[0], None])) == 1
    with pytest.raises(margay.UsageError, match="expected one for each"):
        grid.table(rows[:1])
    with pytest.raises(IndexError):
        grid.run(2)


def test_every_option_of_the_command_is_a_keyword_and_every_keyword_an_option(run: Run) -> None:
    names = {option["name"] for option in margay.options()} - {"source"}
    for options in (_options.Options, _options.ManyOptions, _options.GridOptions):
        assert options.__optional_keys__ == names
    text = run("replay", "--help").stdout
    assert all(f"--{name.replace('_', '-')}" in text for name in names)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"selection": "greedyy"}, ["-s", "greedyy"]),
        ({"device": "nand-slc"}, ["-d", "nand-slc"]),
        ({"utilization": 1.5, "writes": 10}, ["--utilization", "1.5", "--writes", "10"]),
        ({"device_writes": -1.0}, ["--device-writes=-1"]),
        ({"flash_size": "ten"}, ["--flash-size", "ten"]),
        ({"exported_pages": 0, "writes": 9}, ["--exported-pages", "0", "--writes", "9"]),
        ({"pages_per_segment": 0, "writes": 9}, ["--pages-per-segment", "0", "--writes", "9"]),
    ],
)
def test_an_impossible_value_has_the_text_of_the_command(run: Run, options: dict[str, Any], words: list[str]) -> None:
    said = run("replay", "random", *words, check=False)
    assert said.returncode == 2
    with pytest.raises(margay.UsageError) as error:
        margay.simulate("random", **options)
    assert f"margay: {error.value}" == said.stderr.strip()
    assert isinstance(error.value, (margay.Error, ValueError))


def test_what_cannot_be_read_has_the_text_of_the_command(run: Run, tmp_path: Path) -> None:
    bad = tmp_path / "bad.csv"
    bad.write_text("time_us,op,device,offset_bytes,len_bytes\n0,write,0,0,4096\n5,write,0,x,4096\n")
    for source in (tmp_path / "missing.csv", bad):
        said = run("replay", source, check=False)
        assert said.returncode == 3
        with pytest.raises(margay.InputError) as error:
            margay.simulate(source)
        assert f"margay: {error.value}" == said.stderr.strip()


def test_a_wrong_keyword_is_named_and_so_are_those_that_exclude_each_other() -> None:
    with pytest.raises(margay.UsageError, match="unknown key 'utilisation'; the known ones are source, selection"):
        margay.simulate("random", utilisation=0.5)  # type: ignore[call-overload]
    with pytest.raises(margay.UsageError, match="'writes' and 'repeat' exclude each other"):
        margay.simulate("random", writes=5, repeat=2)
    with pytest.raises(margay.UsageError, match=r"low_water|low-water"):
        margay.simulate("random", low_water=-3, writes=10)
    with pytest.raises(margay.UsageError, match=r"expected a name, a function, .* not dict"):
        margay.simulate("random", selection={"a": 1})  # type: ignore[call-overload]
    with pytest.raises(margay.UsageError, match="a run has one"):
        margay.simulate("random", selection=["greedy", "cat"], writes=10)  # type: ignore[call-overload]
    for wrong in (0, -1, True):
        with pytest.raises(margay.UsageError, match="expected a number from 1"):
            margay.simulate("random", seeds=wrong)
        with pytest.raises(margay.UsageError, match="expected a number from 1"):
            margay.compare("random", jobs=wrong)


def test_numbers_of_numpy_are_numbers() -> None:
    options: dict[str, Any] = {"device": "spi-nor-16mb", "device_writes": np.float64(1.0), "seed": np.int32(3)}
    assert margay.simulate("random", **options).row["seed"] == 3


def test_other_threads_run_while_a_run_does() -> None:
    done = threading.Event()
    thread = threading.Thread(
        target=lambda: (margay.simulate("random", device="spi-nor-16mb", device_writes=60), done.set())  # type: ignore[func-returns-value]
    )
    thread.start()
    count = 0
    while not done.is_set():
        count += 1
        time.sleep(0.001)
    thread.join()
    # With the lock held this thread would have got no turn.
    assert count > 5


PROGRAM = """
import margay
print("ready", flush=True)
try:
    {call}
except KeyboardInterrupt:
    print("stopped", flush=True)
"""


@pytest.mark.parametrize(
    "call",
    [
        "margay.simulate('random', device_writes=1e9)",
        "margay.compare('random', device_writes=1e9)",
        "margay.sweep('random', device_writes=1e9, utilization=[0.5, 0.6])",
        "margay.Trace.generate('random,writes=10000000000')",
    ],
)
def test_ctrl_c_ends_a_run_that_would_last_for_years(call: str) -> None:
    program = PROGRAM.format(call=call)
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    assert (out, process.returncode) == ("stopped\n", 0)


def test_results_go_through_pickle() -> None:
    result = margay.simulate("random", device="spi-nor-16mb", device_writes=1)
    again = pickle.loads(pickle.dumps(result))
    assert again.to_json() == result.to_json()
    with pytest.raises(margay.InputError, match="no result"):
        margay.Result.from_json("{}")


SMALL: dict[str, Any] = {"flash_size": "16M", "pages_per_segment": 64, "device_writes": 1}


def test_results_of_many_runs_go_through_pickle() -> None:
    results = margay.compare("random", selection=["greedy", "cat"], placement="m1", seeds=2, **SMALL)
    again = pickle.loads(pickle.dumps(results))
    assert len(again) == 4
    assert again.to_json() == results.to_json()
    assert (again.advice, again.left_out) == (results.advice, results.left_out)
    one = margay.simulate("random", seeds=1, **SMALL)
    assert pickle.loads(pickle.dumps(one)).table.rows() == one.table.rows()


def test_there_are_no_more_threads_than_runs() -> None:
    # As many threads as these would take the machine down.
    many = 65_536
    assert len(margay.sweep("random", seeds=1, jobs=many, **SMALL)) == 1
    assert len(margay.simulate("random", seeds=2, jobs=many, **SMALL)) == 2
    assert len(margay.compare("random", selection="greedy", placement="m1", seeds=2, jobs=many, **SMALL)) == 2


def test_paths_may_be_bytes(tmp_path: Path) -> None:
    class Where:
        def __init__(self, path: bytes) -> None:
            self.path = path

        def __fspath__(self) -> bytes:
            return self.path

    file = tmp_path / "chip.toml"
    file.write_text(margay.Device("spi-nor-16mb").to_toml())
    given: Any = Where(bytes(file))
    assert margay.simulate("random", device=given, device_writes=1).row["device"] == "SPI NOR, 16 MB"
    given = Where(b"\xff.toml")
    with pytest.raises(margay.UsageError, match="device: the name of the file is no UTF-8"):
        margay.simulate("random", device=given)
