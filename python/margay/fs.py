"""Files on flash, as the laboratory measures them."""

from __future__ import annotations

from typing import Any

from margay import _checks, _margay

__all__ = ["model", "replay"]


def replay(
    benchmark: str,
    *,
    allocator: str = "moda",
    segments: int | None = None,
    low_water: int | None = None,
    normal_cleaning: bool = False,
    lazy_deletion: bool = False,
    seed: int = 1,
) -> dict[str, Any]:
    """Run a benchmark of the MODA paper on the engine's file system, then clean all of it.

    ``benchmark`` is one of camera, movie, phone, recorder, fax, postmark and andrew, or several (``"camera+phone"``);
    ``allocator`` is one of ``margay.policies("allocators")`` or any placement. The device is the paper's: 3,712 segments of 32
    pages of 512 bytes, unless ``segments`` says otherwise. With ``normal_cleaning`` segments are cleaned as in YAFFS's normal
    mode, with ``lazy_deletion`` the data of deleted files counts as valid.

    Returns utilization, invalidity and uniformity after the benchmark, and what cleaning then cost: ``estimated_*`` by the model,
    ``measured_*`` by the engine (erases in segments, copies in pages, times in seconds).
    """
    count, mark = _some("segments", segments), _some("low_water", low_water)
    seed = _checks.within("seed", seed, 0, 2**64 - 1)
    return _margay.fs_replay(benchmark, allocator, count, mark, normal_cleaning, lazy_deletion, seed)


def model(
    utilization: float,
    invalidity: float,
    uniformity: float,
    *,
    device: str = "nand-small-block-64mb",
    segments: int | None = None,
) -> dict[str, Any]:
    """Estimate what cleaning a whole device costs (MODA paper, eq. 2 and 3), as ``margay fs model`` does.

    ``utilization`` and ``invalidity`` are valid and invalid pages / pages, ``uniformity`` is the share of segments that do not hold
    valid and invalid pages together. Returns ``erases``, ``copies``, ``time_s`` in seconds and ``energy_mj`` in millijoules.
    """
    return _margay.fs_model(utilization, invalidity, uniformity, device, _some("segments", segments))


def _some(name: str, value: int | None) -> int | None:
    return None if value is None else _checks.within(name, value, 1, 2**32 - 1)
