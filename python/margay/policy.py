"""Policies in Python: what a selection and a placement are shown, and how they say what they are.

A selection is a function of the segments that answers the number of the victim, and is called once for each victim. A
placement is a function of pages that answers the stream of each, and is called once for a batch of pages. Both are
given to :func:`margay.simulate`, :func:`margay.compare` and :func:`margay.sweep` where a name would stand::

    def greedy(segments):
        candidates = segments.candidates
        return candidates[segments.valid[candidates].argmin()]

    margay.simulate("zipf:0.9", selection=greedy)

A class is made anew for each run, with a :class:`Sizing`, so that it can remember what it saw; its method ``select`` or
``place`` (or ``__call__``) is called. docs/python-policies.md says the rest.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

from margay._margay import Pages, Segments
from margay.errors import PolicyError

if TYPE_CHECKING:
    from typing import SupportsIndex

    from numpy.typing import ArrayLike

__all__ = [
    "NEVER",
    "NOWHERE",
    "Kind",
    "Pages",
    "Placement",
    "PolicyError",
    "Segments",
    "Selection",
    "Sizing",
    "State",
    "placement",
    "selection",
]

NEVER = 2**64 - 1
"""The age of a page that holds nothing."""

NOWHERE = 255
"""The stream of a page that holds nothing."""


class State(IntEnum):
    """What a segment is doing, in :attr:`Segments.state`."""

    FREE = 0
    OPEN = 1
    SEALED = 2
    VICTIM = 3
    RESERVED = 4
    BAD = 5


class Kind(IntEnum):
    """Why a page is placed, in :attr:`Pages.kind`."""

    NEW = 0
    """The host writes a page that holds nothing."""
    UPDATE = 1
    """The host writes a page that was written before."""
    COPY = 2
    """Cleaning copies the page."""


@dataclass(frozen=True, slots=True)
class Sizing:
    """The device that a policy is made for, and its seed."""

    segments: int
    """Segments of the device, reserved ones included."""
    data_pages: int
    """Data pages in a segment."""
    exported_pages: int
    """Pages that the device exports: logical pages are numbered from 0 to one less."""
    seed: int
    """Seed of the run, for the policy's own random choices."""


class _Selects(Protocol):
    def select(self, segments: Segments, /) -> SupportsIndex: ...


class _Places(Protocol):
    def place(self, pages: Pages, /) -> ArrayLike: ...


Selection: TypeAlias = "Callable[[Segments], SupportsIndex] | _Selects | Callable[[Sizing], _Selects]"
"""A selection in Python: a function of the segments, an object with the method ``select``, or a class of those."""

Placement: TypeAlias = "Callable[[Pages], ArrayLike] | _Places | Callable[[Sizing], _Places]"
"""A placement in Python: a function of pages, an object with the method ``place``, or a class of those. Its attribute
``streams`` says how many streams it has (see :func:`placement`)."""

_Policy = TypeVar("_Policy", bound=Callable[..., Any])


def selection(*, name: str | None = None, needs_invalidations: bool = False) -> Callable[[_Policy], _Policy]:
    """Say more of a selection, which needs no decorator otherwise.

    ``name`` stands in results, behind ``python:``, instead of the name of the function or class. With
    ``needs_invalidations`` the segments have ``invalidated_us``, ``invalidated_writes`` and ``invalidated_sequence``,
    which makes each host write a little slower.
    """

    def mark(policy: _Policy) -> _Policy:
        return _mark(policy, policy_name=name, needs_invalidations=needs_invalidations)

    return mark


def placement(
    *, streams: int, batch: int = 256, opened_at_start: int = 0, name: str | None = None
) -> Callable[[_Policy], _Policy]:
    """Say what a placement is like.

    ``streams`` is their number, 1 to 64. ``batch`` is the number of host writes that are decided on together, 1 to
    1,048,576: as if they waited in a write buffer of so many pages. The first ``opened_at_start`` streams have an
    open segment from the start, the others get one on first use. ``name`` stands in results, behind ``python:``,
    instead of the name of the function or class.
    """

    def mark(policy: _Policy) -> _Policy:
        return _mark(policy, policy_name=name, streams=streams, batch=batch, opened_at_start=opened_at_start)

    return mark


def _mark(policy: _Policy, **attributes: object) -> _Policy:
    for key, value in attributes.items():
        if value is not None:
            setattr(policy, key, value)
    return policy
