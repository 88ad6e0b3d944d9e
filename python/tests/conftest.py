"""What the tests share."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers import Run, timeless

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def root() -> Path:
    """The clone."""
    return ROOT


@pytest.fixture(scope="session")
def command() -> str:
    """The command ``margay``, built by `cargo build --release -p margay`."""
    path = os.environ.get("MARGAY_COMMAND", str(ROOT / "target/release/margay"))
    assert Path(path).is_file(), f"{path}: no such file; build it with `cargo build --release -p margay`"
    return path


@pytest.fixture(scope="session")
def run(command: str) -> Run:
    """Runs the command with these words."""

    def call(*words: object, check: bool = True) -> subprocess.CompletedProcess[str]:
        return subprocess.run([command, *map(str, words)], check=check, capture_output=True, text=True)

    return call


@pytest.fixture(scope="session")
def rows_of(run: Run) -> Callable[..., list[dict[str, Any]]]:
    """The rows that the command prints as JSON, without times of the wall clock."""

    def rows(*words: object) -> list[dict[str, Any]]:
        found = json.loads(run(*words, "-q", "-f", "json").stdout)
        return [timeless(one.get("row", one)) for one in (found if isinstance(found, list) else [found])]

    return rows
