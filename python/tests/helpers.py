"""Helpers of the tests."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from typing import Any

WALL_TIMES = ("wall_s", "writes_per_s", "seconds")

Run = Callable[..., "subprocess.CompletedProcess[str]"]


def timeless(row: dict[str, Any]) -> dict[str, Any]:
    """A row without times of the wall clock."""
    return {key: value for key, value in row.items() if key not in WALL_TIMES}
