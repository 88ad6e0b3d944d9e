"""The keywords of runs: the options of ``margay replay``, with underscores for hyphens. A test compares them with the command's."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from typing import TYPE_CHECKING, TypeAlias, TypedDict

if TYPE_CHECKING:
    from margay._margay import Device, Trace
    from margay.policy import Placement, Selection

Source: TypeAlias = "str | PathLike[str] | Trace"
"""A trace file, a workload such as ``"hot-cold:90/10"``, a .toml file that describes one, or a :class:`margay.Trace`."""

Names: TypeAlias = "str | Sequence[str]"


class Common(TypedDict, total=False):
    """What runs and comparisons can be told. ``margay.options()`` lists it with the help of ``margay replay``."""

    device: str | PathLike[str] | Device | None
    size_from_trace: bool
    flash_size: str | int | None
    pages_per_segment: int | None
    page_bytes: int | None
    header_pages: int | None
    summary_pages: int | None
    reserved_segments: int | None
    utilization: float | None
    over_provisioning: float | None
    exported_pages: int | None
    fill: float | None
    low_water: int | None
    high_water: int | None
    max_pages_per_write: int | None
    separate_read_only: bool
    leveling: str | None
    writes: int | None
    device_writes: float | None
    repeat: int | None
    until_steady: bool
    warm_up: float | None
    worn_share: float | None
    seed: int | None
    addresses: str | None
    trace_format: str | None
    csv_layout: str | PathLike[str] | None
    trace_device: Names | None
    skip_bad_lines: bool
    bad_line_limit: int | None


class Options(Common, total=False):
    """What a run can be told."""

    selection: str | Selection | None
    placement: str | Placement | None


class ManyOptions(Common, total=False):
    """The same for a comparison, which takes several policies."""

    selection: str | Selection | Sequence[str | Selection] | None
    placement: str | Placement | Sequence[str | Placement] | None


Texts: TypeAlias = "str | Sequence[str] | None"
Wholes: TypeAlias = "int | str | Sequence[int] | None"
Numbers: TypeAlias = "float | str | Sequence[float] | None"
Flags: TypeAlias = "bool | Sequence[bool]"


class GridOptions(TypedDict, total=False):
    """The same for a sweep: each a value, a list of values, or a range such as ``"0.07..0.28:0.03"`` or ``"64..512:*2"``."""

    selection: str | Selection | Sequence[str | Selection] | None
    placement: str | Placement | Sequence[str | Placement] | None
    device: str | PathLike[str] | Device | Sequence[str | PathLike[str] | Device] | None
    size_from_trace: Flags
    flash_size: str | int | Sequence[str | int] | None
    pages_per_segment: Wholes
    page_bytes: Wholes
    header_pages: Wholes
    summary_pages: Wholes
    reserved_segments: Wholes
    utilization: Numbers
    over_provisioning: Numbers
    exported_pages: Wholes
    fill: Numbers
    low_water: Wholes
    high_water: Wholes
    max_pages_per_write: Wholes
    separate_read_only: Flags
    leveling: Texts
    writes: Wholes
    device_writes: Numbers
    repeat: Wholes
    until_steady: Flags
    warm_up: Numbers
    worn_share: Numbers
    seed: Wholes
    addresses: Texts
    trace_format: Texts
    csv_layout: str | PathLike[str] | None
    trace_device: Names | None
    skip_bad_lines: Flags
    bad_line_limit: Wholes
