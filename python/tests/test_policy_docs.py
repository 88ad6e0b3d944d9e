"""The examples of docs/python-policies.md print what stands below them."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from typing import Any

FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_the_examples_print_what_stands_below_them(root: Path) -> None:
    page = (root / "docs/python-policies.md").read_text()
    parts = [(match[1], match[2]) for match in FENCE.finditer(page)]
    assert [kind for kind, _ in parts] == ["python", "text"] * (len(parts) // 2)
    assert len(parts) >= 8
    names: dict[str, Any] = {}
    for (_, code), (_, wanted) in zip(parts[::2], parts[1::2], strict=True):
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            exec(compile(code, "docs/python-policies.md", "exec"), names)
        assert said.getvalue() == wanted
