from __future__ import annotations

import doctest
import json
import pickle
import re
from pathlib import Path
from typing import Any

import margay
import pytest
from helpers import Run, timeless


def test_presets_are_devices_and_a_preset_is_the_device_of_that_name(rows_of: Any) -> None:
    for name in margay.Device.presets():
        device = margay.Device(name)
        assert device.flash_bytes > 0
        assert device == pickle.loads(pickle.dumps(device)) == margay.Device(name)
    options: dict[str, Any] = {"device": margay.Device("spi-nor-16mb"), "device_writes": 1}
    assert [timeless(margay.simulate("random", **options).row)] == rows_of(
        "replay", "random", "-d", "spi-nor-16mb", "--device-writes", 1
    )


def test_a_device_of_ones_own_is_the_file_that_describes_it(rows_of: Any, tmp_path: Path) -> None:
    fields = {
        **margay.Device("nand-slc-1gbit").fields,
        "name": "mine",
        "segments": 200,
        "timing": {"read_us": 1.5, "program_us": 2, "erase_us": 3},
    }
    device = margay.Device.custom(**fields)
    assert device.name == "mine"
    path = tmp_path / "mine.toml"
    path.write_text(device.to_toml())
    assert margay.Device(str(path)).fields == device.fields
    assert pickle.loads(pickle.dumps(device)) == device
    row = timeless(margay.simulate("random", device=device, device_writes=1).row)
    assert [row] == rows_of("replay", "random", "-d", path, "--device-writes", 1)
    table = margay.sweep("random", device=[device, "spi-nor-16mb"], device_writes=1, seeds=1).table
    assert sorted(table["segments"].tolist()) == [200, margay.Device("spi-nor-16mb").fields["segments"]]


def test_a_device_that_cannot_be_is_refused() -> None:
    fields = margay.Device("nand-slc-1gbit").fields
    with pytest.raises(margay.UsageError, match="unknown; the known ones are"):
        margay.Device("nand-slc")
    with pytest.raises(margay.InputError, match="missing"):
        margay.Device("missing.toml")
    with pytest.raises(margay.UsageError, match="pages_per_segmentt"):
        margay.Device.custom(**fields, pages_per_segmentt=3)
    with pytest.raises(margay.UsageError, match=r"device: .*segments"):
        margay.Device.custom(**{**fields, "segments": -1})
    with pytest.raises(margay.UsageError):
        margay.Device.custom(**{**fields, "segments": 0})
    with pytest.raises(margay.UsageError, match="missing field"):
        margay.Device.custom()


def test_the_lists_are_those_of_the_command(run: Run) -> None:
    text = run("policies").stdout
    entries = margay.policies()
    assert {entry["of"] for entry in entries} >= {"selection", "placement", "leveling", "traces", "devices"}
    assert all(re.search(rf"^  {re.escape(entry['name'])}\b", text, re.MULTILINE) for entry in entries)
    assert [entry["name"] for entry in margay.policies("devices")] == margay.Device.presets()
    with pytest.raises(margay.UsageError, match="the lists are selection"):
        margay.policies("nonsense")  # type: ignore[arg-type]


def test_models_are_those_of_the_command(run: Run) -> None:
    said = run("model", "greedy", "op=0.1", "b=64", "idle=3/1024").stdout
    values = margay.model("greedy", op=0.1, b=64, idle="3/1024")
    assert values
    for name, value in values.items():
        assert f"{name} = {value:.6f}" in said
    assert "greedy" in [model["name"] for model in margay.models()]
    for parameters in ({"op": -1.0}, {"op": 0.1}, {"op": 0.1, "b": 64, "idle": "2"}):
        words = [f"{key}={value}" for key, value in parameters.items()]
        said_wrong = run("model", "greedy", *words, check=False)
        with pytest.raises(margay.UsageError) as error:
            margay.model("greedy", **parameters)
        assert f"margay: {error.value}" == said_wrong.stderr.strip()


def test_a_forecast_is_that_of_its_result_and_another_part_lasts_in_proportion() -> None:
    result = margay.simulate("hot-cold:90/10,poisson=1000us", device="spi-nor-16mb", device_writes=3)
    assert margay.forecast(result) == result.forecast
    endurance = result.forecast["endurance_erases"]
    twice = margay.forecast(result, endurance_erases=2 * endurance)
    assert twice["years_first"] == pytest.approx(2 * result.forecast["years_first"])
    plain = margay.forecast(
        [10, 5, 5, 0], endurance_erases=1000, worn_share=0.5, host_bytes=1e12, duration_s=365.25 * 86400
    )
    assert (plain["years_first"], plain["tbw_share"]) == (100.0, 200.0)
    wrong: list[dict[str, Any]] = [
        {"erases": []},
        {"erases": [-1]},
        {"erases": [1], "worn_share": 2.0},
        {"erases": [1], "endurance_erases": 0},
        {"erases": [1], "host_bytes": -1.0},
        {"erases": [1], "duration_s": float("nan")},
    ]
    for options in wrong:
        with pytest.raises(margay.UsageError):
            margay.forecast(**{"endurance_erases": 1000, "host_bytes": 1.0, **options})
    with pytest.raises(margay.UsageError, match="need endurance_erases"):
        margay.forecast([1])
    counts: tuple[Any, ...] = (-1, 2**32, 1.5, float("nan"), "7")
    for count in counts:
        with pytest.raises(margay.UsageError, match="is no number of erases"):
            margay.forecast([1, count], endurance_erases=1000, host_bytes=1.0)


def test_page_references_have_the_rows_of_the_command(run: Run, root: Path) -> None:
    trace = root / "samples/sort.vmt.zst"
    schemes = [entry["name"] for entry in margay.policies("schemes")][:2]
    words = [word for scheme in schemes for word in ("-s", scheme)]
    said = json.loads(run("vm", "replay", trace, "--cache", "1M", *words, "--only-written", "-q", "-f", "json").stdout)
    table = margay.vm.replay(trace, scheme=schemes, cache="1M", only_written=True)
    assert [timeless(row) for row in table.rows()] == [timeless(row) for row in said]
    assert {option["name"] for option in margay.vm.options()} >= {"cache", "scheme", "passes", "log_blocks"}
    for options, text in (
        ({"cache": "1K"}, "room for at least 16 pages"),
        ({"cash": "1M"}, "unknown key 'cash'"),
        ({"scheme": "none-such"}, "none-such"),
        ({"only_written": 3}, "expected True or False"),
        ({"passes": -1}, "passes"),
    ):
        with pytest.raises(margay.UsageError, match=text):
            margay.vm.replay(trace, **options)  # type: ignore[arg-type]
    with pytest.raises(margay.InputError):
        margay.vm.replay(root / "missing.vmt")


def test_files_cost_what_the_model_says(run: Run) -> None:
    said = run("fs", "model", "-u", "0.86", "-i", "0.0087", "-p", "0.73").stdout
    cost = margay.fs.model(0.86, 0.0087, 0.73)
    assert f"erases   {cost['erases']:.1f}" in said
    assert f"time     {cost['time_s']:.3f} s" in said
    assert f"energy   {cost['energy_mj']:.3f} mJ" in said
    with pytest.raises(margay.UsageError):
        margay.fs.model(2.0, 0.1, 0.5)
    row = margay.fs.replay("fax", allocator="moda")
    assert row["benchmark"] == "fax"
    assert 0 < row["utilization"] <= 1
    assert row == margay.fs.replay("fax", allocator="moda")
    with pytest.raises(margay.UsageError):
        margay.fs.replay("no-such-benchmark")
    for name in ("segments", "low_water", "seed"):
        wrong: dict[str, Any] = {name: -1}
        with pytest.raises(margay.UsageError, match=f"{name} = -1: expected a number from"):
            margay.fs.replay("fax", **wrong)


def test_the_example_of_the_package_is_true() -> None:
    assert doctest.testmod(margay).failed == 0
    assert margay.__version__
