"""Files of a sweep on other machines: named by path and hash, read from any file system of fsspec, once per machine."""

from __future__ import annotations

import json
import os
import posixpath
import shutil
import socket
import stat
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import urlsplit

from margay import _margay
from margay.errors import Error, InputError, RunError

if TYPE_CHECKING:
    from margay._options import Source

#: A file as settings name it: the setting, and the path.
Named: TypeAlias = tuple[str, str]


@dataclass(frozen=True)
class Place:
    """Where a file is, and what is in it."""

    #: A path, or a URL of fsspec.
    place: str
    #: xxh3 of the content, 16 hexadecimal digits.
    hash: str

    @property
    def name(self) -> str:
        """The name of the file without its folder."""
        return _name(self.place)


def is_url(place: object) -> bool:
    """Whether a text is a URL that fsspec opens, such as ``s3://bucket/trace.csv.zst``."""
    return isinstance(place, str) and "://" in place


def _name(place: str) -> str:
    path = urlsplit(place).path if is_url(place) else place
    return posixpath.basename(path.rstrip("/")) or "trace"


def _cache() -> Path:
    """The folder of this user for files that were fetched."""
    folder = Path(tempfile.gettempdir()) / f"margay-files-{os.getuid()}"
    with _writing(folder):
        # A link to a folder is none.
        if not folder.is_symlink():
            folder.mkdir(mode=0o700, exist_ok=True)
        about = folder.lstat()
    if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.getuid():
        raise RunError(f"{folder}: is no folder of this user; set TMPDIR to a folder of your own")
    return folder


@contextmanager
def _writing(folder: Path) -> Iterator[None]:
    """Says what to do if the cache cannot be written."""
    try:
        yield
    except OSError as error:
        if isinstance(error, Error):
            raise
        problem = error.strerror or str(error)
        raise RunError(f"{folder}: cannot be used for files that are fetched ({problem}); set TMPDIR") from error


_locks: dict[str, threading.Lock] = {}
_of_locks = threading.Lock()
#: What was found for each place: one look per process.
_found: dict[Place, str] = {}
#: URLs that this process has fetched, with the hash of each.
_fetched: dict[str, Place] = {}


def _lock(key: str) -> threading.Lock:
    with _of_locks:
        return _locks.setdefault(key, threading.Lock())


def _download(url: str) -> tuple[Path, str]:
    """Fetch a URL to a file of the cache that has its name; returns the file and its hash."""
    try:
        import fsspec
    except ImportError:
        raise RunError(f"{url}: reading it needs fsspec: python3 -m pip install 'margay[dask]'") from None
    cache = _cache()
    with _writing(cache):
        folder = Path(tempfile.mkdtemp(dir=cache, prefix="part-"))
    part = folder / _name(url)
    try:
        try:
            with fsspec.open(url, "rb") as source, part.open("wb") as target:
                while chunk := source.read(1 << 20):
                    target.write(chunk)
        except FileNotFoundError:
            raise InputError(f"{url}: no such file") from None
        except (OSError, ValueError, ImportError) as error:
            raise InputError(f"{url}: cannot be read into {folder.parent}: {error or type(error).__name__}") from error
        except Exception as error:  # each file system has its own
            raise InputError(f"{url}: cannot be read: {type(error).__name__}: {error}") from error
        digest = _margay.file_hash(part)
        whole = cache / digest
        with _writing(whole):
            whole.mkdir(mode=0o700, exist_ok=True)
            os.replace(part, whole / part.name)
        return whole / part.name, digest
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def fetch(url: str) -> str:
    """Fetch a file from any file system that fsspec knows, and return its path on this machine.

    It is fetched once by a process, and kept in a folder of the user below that for temporary files (``TMPDIR``). A path is
    returned as it is. Raises :class:`margay.InputError` if it cannot be read.
    """
    if not is_url(url):
        return url
    with _lock(url):
        if url not in _fetched:
            path, digest = _download(url)
            _fetched[url] = Place(url, digest)
            _found[_fetched[url]] = str(path)
        return _found[_fetched[url]]


def fetched(source: Source | Sequence[Source]) -> Any:
    """The source, or sources, with files in the place of URLs."""
    if isinstance(source, str):
        return fetch(source)
    if isinstance(source, Sequence):
        return [fetch(one) if isinstance(one, str) else one for one in source]
    return source


def place_of(path: str) -> Place:
    """The place of a file that is on this machine: its URL if it was fetched, its absolute path if not."""
    for place in _fetched.values():
        if _found.get(place) == path:
            return place
    return Place(os.path.abspath(path), _margay.file_hash(path))


def here(place: Place) -> str:
    """The path of a file on this machine, with the content that its hash says; it is fetched or looked at once by a process."""
    with _lock(place.place):
        if place not in _found:
            _found[place] = _find(place)
        return _found[place]


def _find(place: Place) -> str:
    machine = socket.gethostname()
    if not is_url(place.place):
        if not os.path.isfile(place.place):
            raise InputError(
                f"{place.place}: no such file on the worker {machine}; put it where all workers see it under the same path, "
                "or name it by a URL of fsspec"
            )
        if _margay.file_hash(place.place) != place.hash:
            raise InputError(
                f"{place.place}: has another content on the worker {machine}; the sweep is of xxh3 {place.hash}"
            )
        return place.place
    cached = _cache() / place.hash / place.name
    if cached.is_file() and _margay.file_hash(cached) == place.hash:
        return str(cached)
    path, digest = _download(place.place)
    if digest != place.hash:
        raise InputError(f"{place.place}: has changed since the sweep began (xxh3 {digest} instead of {place.hash})")
    return str(path)


def files_of(settings: str) -> list[Named]:
    """The files that the settings of a point name, as JSON; they are on this machine."""
    return _margay.settings_files(settings)


def files_of_text(settings: str, places: dict[Named, Place]) -> dict[Named, Place]:
    """The files among ``places`` that the settings of a point name, as JSON; they need not be on this machine."""
    return {name: places[name] for name in json.loads(settings).items() if _is_named(name) and name in places}


def moved(settings: str, paths: dict[Named, str]) -> str:
    """The settings of a point with other paths in the place of its files."""
    fields = json.loads(settings)
    return json.dumps(fields | {name[0]: paths[name] for name in fields.items() if _is_named(name) and name in paths})


def _is_named(setting: tuple[str, object]) -> bool:
    """Whether a setting has a text, and not a list."""
    return isinstance(setting[1], str)
