"""Flash as swap space, as ``margay vm`` measures it."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike, fspath
from typing import TYPE_CHECKING

from margay import _margay
from margay.errors import UsageError

if TYPE_CHECKING:
    from margay._margay import Table

__all__ = ["options", "replay"]


def replay(
    trace: str | PathLike[str],
    *,
    scheme: str | Sequence[str] | None = None,
    **given: str | float | bool | None,
) -> Table:
    """Replay page references through a page cache over flash, as ``margay vm replay`` does.

    ``trace`` is a file of page references (VMT1, or the text of valgrind's lackey), ``scheme`` one or more schemes of cleaning
    (all without it: ``margay.policies("schemes")``). The other keywords are options of the command: ``cache="1M"``,
    ``log_blocks=32``, ``store="page"``, ``passes=2``; :func:`options` lists them.

    Returns a table with one row for each scheme. Times are in microseconds, counts in pages unless the name says otherwise.
    """
    known = {option["name"]: option["is_flag"] for option in _margay.paging_options()}
    schemes = [] if scheme is None else [scheme] if isinstance(scheme, str) else list(scheme)
    words = [f"--scheme={name}" for name in schemes]
    for key, value in given.items():
        if key not in known or key == "trace":
            names = ", ".join(name for name in known if name != "trace")
            raise UsageError(f"unknown key '{key}'; the known ones are {names}")
        if known[key]:
            if not isinstance(value, bool):
                raise UsageError(f"{key} = {value}: expected True or False")
            words += [f"--{key.replace('_', '-')}"] if value else []
        elif value is not None:
            words.append(f"--{key.replace('_', '-')}={value}")
    return _margay.vm_replay([*words, "--", fspath(trace)])


def options() -> list[dict[str, object]]:
    """The keywords of :func:`replay`: ``name``, ``help`` (the command's), and ``is_flag``."""
    return [option for option in _margay.paging_options() if option["name"] != "trace"]
