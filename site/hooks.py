"""What mkdocs builds besides site/pages: the repository's documents, the command's reference, policies, notebooks."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
MADE = ROOT / "out/site-made"


def _load(name: str) -> ModuleType:
    """A module of this folder, which is no package."""
    spec = importlib.util.spec_from_file_location(f"margay_site_{name}", HERE / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def documents() -> list[Path]:
    """The documents of the repository, and their pictures."""
    names = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "FORMAT.md"]
    names += ["bare/README.md", "crates/volume/README.md", "samples/README.md"]
    return [ROOT / name for name in names] + sorted(
        path for path in (ROOT / "docs").rglob("*") if path.suffix in (".md", ".svg", ".png")
    )


def man_pages() -> dict[str, tuple[str, str]]:
    """The command's name and the Markdown of each manual page, by the page's name."""
    manual = _load("manual")
    texts = {
        page: path.read_text() for page, path in sorted((path.stem, path) for path in (ROOT / "docs/man").glob("*.1"))
    }
    names = {page: manual.name_of(text) for page, text in texts.items()}
    return {page: (names[page], manual.to_markdown(text, names)) for page, text in texts.items()}


def _placed(nav: Any, title: str, entries: list[Any]) -> bool:
    """Puts entries below the heading of the navigation that has this title."""
    for item in nav if isinstance(nav, list) else []:
        for key, below in item.items() if isinstance(item, dict) else []:
            if key == title:
                item[key] = entries
                return True
            if _placed(below, title, entries):
                return True
    return False


def _added(nav: Any, title: str, name: str) -> None:
    """Adds a page to the part of the navigation that has this title."""
    next(item[title] for item in nav if title in item).append(name)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Fill in the parts of the navigation that are made."""
    pages = [{name: f"command/{page}.md"} for page, (name, _) in man_pages().items()]
    _placed(config.nav, "The command", pages)
    titles = _load("notebooks").titles()
    _placed(config.nav, "Notebooks", [{title: f"notebooks/{name}.md"} for name, title in titles.items()])
    # A document that the navigation does not name is put where its kind is.
    named = repr(config.nav)
    for path in sorted((ROOT / "docs").glob("*.md")):
        name = path.relative_to(ROOT).as_posix()
        if f"'{name}'" not in named:
            _added(config.nav, "Python" if path.stem.startswith("python") else "Measuring", name)
    # Decisions are pages of their own, below their list.
    decisions = sorted((ROOT / "docs/decisions").glob("0*.md"))
    entries: list[Any] = ["docs/decisions/README.md", *(f"docs/decisions/{path.name}" for path in decisions)]
    _placed(config.nav, "Decisions", entries)
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the documents and what is made."""
    for path in documents():
        name = path.relative_to(ROOT).as_posix()
        files.append(File.generated(config, name, abs_src_path=str(path)))
    for page, (_, text) in man_pages().items():
        files.append(File.generated(config, f"command/{page}.md", content=text))
    MADE.mkdir(parents=True, exist_ok=True)
    for name, content in {**_load("policies").pages(MADE), **_load("notebooks").pages(MADE)}.items():
        files.append(File.generated(config, name, content=content))
    return files


LINK = re.compile(r"(?<!!)\[([^\]]*)\]\((?!https?:|mailto:|#)([^)#\s]+)(#[^)\s]*)?\)")


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Name the files of the repository that are no pages, instead of a link to nowhere."""
    folder = (ROOT / page.file.src_uri).parent

    def link(found: re.Match[str]) -> str:
        text, target = found[1], found[2]
        path = (folder / target).resolve()
        if not path.is_relative_to(ROOT) or not path.exists():
            return found[0]
        name = path.relative_to(ROOT).as_posix()
        if path.is_dir() and files.get_file_from_path(f"{name}/README.md"):
            return f"[{text}]({target.rstrip('/')}/README.md{found[3] or ''})"
        if files.get_file_from_path(name):
            return found[0]
        return text if text.strip("`") == name else f"{text} (`{name}`)"

    return LINK.sub(link, markdown)


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Docstrings name things with roles, which editors understand and Markdown does not."""
    return re.sub(r":(?:attr|class|func|meth|mod|data|exc):(<code>)~?", r"\1", html)
