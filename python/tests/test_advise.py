"""Advice: the answer of the command, as an object."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import margay
import pytest

SMALL: dict[str, Any] = {
    "device": "intel-series2plus-24mb",
    "selection": ["greedy", "cat"],
    "placement": ["m1", "m4"],
    "over_provisioning": [0.15, 0.3],
    "seeds": 2,
}
WORDS = "-d intel-series2plus-24mb -s greedy,cat -p m1,m4 --over-provisioning 0.15,0.3 --seeds 2 -q --years 5".split()
SOURCE = "hot-cold:90/10"


def test_the_answer_is_that_of_the_command(command: str, tmp_path: Path) -> None:
    kept = tmp_path / "kept.points"
    advice = margay.advise(SOURCE, years=5, per_day="100M", finished=kept, **SMALL)
    assert advice.verdict == "yes"
    assert str(advice) == advice.text
    assert advice.text.startswith("hot-cold:90/10 on Intel")
    words = [command, "advise", SOURCE, *WORDS, "--per-day", "100M", "--points", str(kept), "--format", "json"]
    size = kept.stat().st_size
    said = json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
    assert said == advice.fields
    assert kept.stat().st_size == size, "finished runs were run again"
    # The same runs, another question.
    no = margay.advise(SOURCE, years=5, per_day=1e12, finished=kept, **SMALL)
    assert no.verdict == "no"
    assert "cannot be reached" in str(no)
    # Parameters that Optuna finds are measured as all others are.
    tuned = margay.advise(SOURCE, years=5, per_day="100M", finished=kept, trials=5, **SMALL)
    assert tuned.verdict == "yes"
    assert tuned.rivals[0]["wa"] <= advice.rivals[0]["wa"] * 1.01


def test_a_cluster_gives_the_same_answer() -> None:
    narrow = {**SMALL, "placement": ["m1"], "over_provisioning": [0.3]}
    near = margay.advise(SOURCE, years=5, per_day="100M", **narrow)
    far = margay.advise(SOURCE, years=5, per_day="100M", engine="dask", jobs=2, **narrow)
    assert far.fields == near.fields


def test_wrong_questions_are_refused() -> None:
    with pytest.raises(margay.UsageError, match="--per-day 20G"):
        margay.advise(SOURCE, years=5, **SMALL)
    with pytest.raises(margay.UsageError, match="years"):
        margay.advise(SOURCE, years=0, per_day="1G", **SMALL)
    with pytest.raises(margay.UsageError, match="much"):
        margay.advise(SOURCE, years=5, per_day="much", **SMALL)
    with pytest.raises(margay.UsageError, match="leveling"):
        margay.advise(SOURCE, years=5, per_day="1G", leveling="swap", **SMALL)
    with pytest.raises(margay.UsageError, match="engine = spark"):
        margay.advise(SOURCE, years=5, engine="spark", **SMALL)
    with pytest.raises(margay.UsageError, match="a comparison measures your own"):
        margay.advise(SOURCE, years=5, per_day="1G", device="spi-nor-16mb", selection=lambda segments: 0)
    for name, value in (("seeds", 0), ("seeds", -1), ("jobs", 0), ("jobs", -1), ("trials", -1)):
        with pytest.raises(margay.UsageError, match=f"{name} = {value}: expected a number from"):
            margay.advise(SOURCE, years=5, per_day="1G", **{**SMALL, name: value})


@pytest.mark.parametrize("end", [{"writes": 20000}, {"device_writes": 3}, {"warm_up": 0.5, "device_writes": 3}])
def test_runs_of_optuna_end_as_those_of_the_search_do(tmp_path: Path, end: dict[str, Any]) -> None:
    kept = tmp_path / "kept.points"
    narrow: dict[str, Any] = {**SMALL, "selection": "cat", "placement": "m4", "over_provisioning": 0.3, "seeds": 1}
    advice = margay.advise(SOURCE, years=5, per_day="100M", finished=kept, trials=3, **narrow, **end)
    keys = [json.loads(line).get("point") for line in kept.read_text().splitlines()[1:]]
    assert advice.runs > 0
    assert len(keys) == len(set(keys)), "a run was kept twice"
    size = kept.stat().st_size
    margay.advise(SOURCE, years=5, per_day="100M", finished=kept, trials=3, **narrow, **end)
    assert kept.stat().st_size == size, "finished runs were run or kept again"


def test_a_source_can_be_a_url(root: Path) -> None:
    trace = (root / "samples/sqlite-messages.mgt").as_uri()
    narrow: dict[str, Any] = {
        "selection": "greedy",
        "placement": "m1",
        "over_provisioning": [0.2],
        "repeat": 3,
        "seeds": 1,
    }
    advice = margay.advise(trace, years=5, per_day="1G", **narrow)
    assert advice.text.startswith("sqlite-messages.mgt on ")
