"""The notebooks, run: what the tests run, and what the site shows."""

from __future__ import annotations

import base64
import os
import sys
from hashlib import sha256
from pathlib import Path
from typing import Any

import margay
import nbformat
from nbclient import NotebookClient

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "notebooks"


def sources() -> list[Path]:
    """The notebooks of the repository, which are kept without outputs."""
    return sorted(FOLDER.glob("*.ipynb"))


def _read(path: Path) -> Any:
    return nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]


def titles() -> dict[str, str]:
    """The heading of each notebook, by its name."""
    return {path.stem: _read(path).cells[0].source.splitlines()[0].removeprefix("# ") for path in sources()}


def executed(path: Path, made: Path) -> Any:
    """The notebook with its outputs: those of the last time, if neither it nor the package has changed since then."""
    package = sorted(Path(str(margay.__file__)).parent.glob("*.*"))
    key = sha256(b"".join(file.read_bytes() for file in [path, *package])).hexdigest()[:16]
    kept = made / "notebooks" / f"{path.stem}-{key}.ipynb"
    if kept.is_file():
        return _read(kept)
    notebook = _read(path)
    # The kernel is this interpreter, whatever kernels the user has registered.
    os.environ.setdefault("PYDEVD_DISABLE_FILE_VALIDATION", "1")
    client = NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(FOLDER)}})
    manager: Any = client.create_kernel_manager()
    manager.kernel_spec.argv = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    client.execute()
    kept.parent.mkdir(parents=True, exist_ok=True)
    for old in kept.parent.glob(f"{path.stem}-*.ipynb"):
        old.unlink()
    part = kept.with_suffix(".part")
    nbformat.write(notebook, part)  # type: ignore[no-untyped-call]
    part.replace(kept)
    return notebook


def _output(output: Any, name: str, files: dict[str, str | bytes]) -> str:
    """An output as Markdown: a picture, a table, or text."""
    data = output.get("data", {})
    if "image/png" in data:
        picture = f"{name}-{sum(file.startswith(f'notebooks/{name}-') for file in files) + 1}.png"
        files[f"notebooks/{picture}"] = base64.b64decode(data["image/png"])
        return f"![Output of the lines above]({picture})\n"
    if "text/html" in data:
        # Lines that are empty would end the element.
        html = "\n".join(line for line in "".join(data["text/html"]).splitlines() if line.strip())
        return f'<div class="margay-output">\n{html}\n</div>\n'
    if output.get("name") == "stderr":
        return ""
    text = "".join(output.get("text") or data.get("text/plain") or "").rstrip()
    # Drawing returns axes, which say nothing beside the picture.
    return "" if not text or text.startswith("<Axes") else f'```text title="Output"\n{text}\n```\n'


def pages(made: Path) -> dict[str, str | bytes]:
    """The executed notebooks as pages, and their pictures."""
    files: dict[str, str | bytes] = {}
    for path in sources():
        parts = []
        for cell in executed(path, made).cells:
            if cell.cell_type == "markdown":
                parts.append(cell.source + "\n")
            elif cell.cell_type == "code":
                parts.append(f"```python\n{cell.source}\n```\n")
                parts += [said for output in cell.outputs if (said := _output(output, path.stem, files))]
        files[f"notebooks/{path.stem}.md"] = "\n".join(parts)
    return files
