"""The notebooks run, and the site is built from them with warnings denied."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest


def notebooks_of(root: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("notebooks", root / "site/notebooks.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


NOTEBOOKS = ["a-new-cleaning-policy-in-30-lines", "how-long-will-my-flash-last"]


@pytest.fixture(scope="session")
def made(root: Path) -> Path:
    """What the site keeps between two builds of it."""
    return root / "out/site-made"


def test_all_notebooks_are_run_here(root: Path) -> None:
    assert [path.stem for path in notebooks_of(root).sources()] == NOTEBOOKS


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_runs_and_shows_pictures(root: Path, made: Path, name: str) -> None:
    source = root / f"notebooks/{name}.ipynb"
    assert '"outputs": []' in source.read_text()
    assert '"image/png"' not in source.read_text(), "notebooks are kept without outputs"
    notebook = notebooks_of(root).executed(source, made)
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert sum("image/png" in output.get("data", {}) for output in outputs) >= 4
    assert not [output for output in outputs if output.get("name") == "stderr"]


def test_the_site_is_built_without_warnings(root: Path, tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "--strict",
        "-f",
        "site/mkdocs.yml",
        "-d",
        str(tmp_path / "site"),
    ]
    # A warning of mkdocs-material about the next version of mkdocs, which is no warning about the site.
    quiet = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(command, cwd=root, env=quiet, check=False, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr[-4000:]
    site = tmp_path / "site"
    policies = (site / "policies/index.html").read_text()
    rows = re.findall(r"^\| `([^`]+)`", (root / "docs/policies.md").read_text().split("## Workloads")[0], re.MULTILINE)
    assert len(rows) > 40
    headings = re.findall(r'<h3 id="([^"]+)"', policies)
    assert len(headings) == len(rows), "a heading for each policy"
    pictures = set(re.findall(r'<img alt="[^"]*" src="([^"]+)"', policies))
    assert len(pictures) > 30
    assert all((site / "policies" / picture).resolve().is_file() for picture in pictures)
    for page in (
        "reference",
        "command/margay-replay",
        "docs/reproduction",
        *(f"notebooks/{name}" for name in NOTEBOOKS),
    ):
        assert (site / page / "index.html").is_file(), page
    reference = (site / "reference/index.html").read_text()
    assert "write_amplification" in reference
    assert ":class:" not in reference


def test_commands_become_definitions(root: Path) -> None:
    sys.path.insert(0, str(root / "site"))
    try:
        import manual  # type: ignore[import-not-found]
    finally:
        sys.path.pop(0)
    page = ".TH margay-x-y 1\n.SH NAME\nmargay\\-x\\-y \\- Do\n.SH SYNOPSIS\n\\fBmargay x\\-y\\fR [\\fB\\-a\\fR]\n.SH OPTIONS\n.TP\n"
    page += "\\fB\\-a\\fR \\fI<A_B>\\fR\nText with `code*` and *\n.br\n.IP \\(bu 2\none\n.SH SEE\nmargay\\-z(1)\n"
    text = manual.to_markdown(page, {"margay-z": "margay z"})
    assert text.startswith("# margay x-y\n")
    assert "**-a** *&lt;A\\_B&gt;*\n:   Text with `code*` and \\*\n\n    - one\n" in text
    assert "[margay z](margay-z.md)" in text
