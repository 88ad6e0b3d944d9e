"""The extension, crates/py: the engine's laboratory."""

from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Protocol, TypeAlias, final

import numpy as np
import numpy.typing as npt

__version__: str

_Whole: TypeAlias = npt.NDArray[np.integer[Any]] | Sequence[int]

class _ArrowStream(Protocol):
    def __arrow_c_stream__(self, requested_schema: object = None, /) -> object: ...

@final
class Table:
    """A table of columns of equal length.

    polars, pandas, DuckDB, pyarrow and others take it as it is: ``polars.DataFrame(table)``,
    ``pandas.DataFrame.from_arrow(table)``, ``pyarrow.table(table)``.
    """

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
    def __len__(self) -> int:
        """The number of rows."""
    def __getitem__(self, name: str, /) -> npt.NDArray[Any]:
        """A column, of shape (rows,).

        float64 (NaN where there is no value), uint64, bool, or object for text.
        """
    def rows(self) -> list[dict[str, Any]]:
        """The rows as dictionaries; None where there is no value."""
    def __arrow_c_schema__(self) -> object: ...
    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]: ...
    def __arrow_c_stream__(self, requested_schema: object = None) -> object: ...
    def _repr_html_(self) -> str: ...

@final
class Device:
    """A flash device: shape, times, energy, endurance."""

    def __new__(cls, name: str) -> Device:
        """A preset by its name (:meth:`presets`), or the device that a .toml file describes."""
    @classmethod
    def custom(cls, **fields: object) -> Device:
        """A device of these fields.

        ``name``, ``segments``, ``pages_per_segment``, ``page_bytes``, ``timing`` (a dictionary with ``read_us``, ``program_us``
        and ``erase_us``) and ``endurance_erases`` are needed; ``header_pages``, ``summary_pages``, ``spare_bytes``,
        ``byte_programmable``, ``energy`` (``read_uj``, ``program_uj``, ``erase_uj``) and ``source`` are not.
        """
    @staticmethod
    def from_toml(text: str) -> Device:
        """The device that a text in TOML describes."""
    @staticmethod
    def presets() -> list[str]:
        """The names of the presets."""
    @property
    def name(self) -> str:
        """Its name."""
    @property
    def fields(self) -> dict[str, Any]:
        """All fields; times are in microseconds, energies in microjoules."""
    @property
    def flash_bytes(self) -> int:
        """The bytes of its pages, metadata pages included."""
    def to_toml(self) -> str:
        """The text of a .toml file that describes it."""
    def __eq__(self, other: object, /) -> bool: ...
    def __reduce__(self) -> tuple[object, tuple[str]]: ...

@final
class Trace:
    """Requests to block devices: in a file, or in memory.

    ``len(trace)`` is the number of requests, ``trace[1000:2000]`` a part of them, in memory; times then count from its first request.
    polars, pandas, DuckDB and pyarrow take a trace as a table with the columns that :meth:`from_arrow` reads.
    """

    @staticmethod
    def open(
        path: str | PathLike[str],
        *,
        trace_format: str | None = None,
        csv_layout: str | PathLike[str] | None = None,
        trace_device: str | Sequence[str] | None = None,
        skip_bad_lines: bool = False,
        bad_line_limit: int | None = None,
    ) -> Trace:
        """A trace file of any format of ``margay.policies("traces")``, compressed or not. It is read when it is used."""
    @staticmethod
    def from_numpy(
        offset_bytes: _Whole,
        len_bytes: _Whole | int | None = None,
        *,
        kind: _Whole | str | None = None,
        time_us: _Whole | int | None = None,
        device: _Whole | int | None = None,
        stream: _Whole | int | None = None,
        name: str = "numpy",
    ) -> Trace:
        """A trace in arrays (or lists) of whole numbers, each of shape (requests,), or one number for all requests.

        ``offset_bytes`` is the first byte of each request, ``len_bytes`` its length (4096 without it), ``kind`` 0 for a read, 1 for a
        write (all without it), 2 for a trim and 3 for a flush, ``time_us`` microseconds on any clock, ``device`` the number of a
        volume, ``stream`` the stream that the host wrote to.

        Arrays whose elements lie side by side are not copied: do not change them while the trace is used.
        """
    @staticmethod
    def from_arrow(table: _ArrowStream, *, len_bytes: int = 4096, name: str = "arrow") -> Trace:
        """A trace in a table of polars, pandas, pyarrow, DuckDB or another library that speaks Arrow, which is not copied.

        Its columns are those of :meth:`from_numpy`, by name; only ``offset_bytes`` is needed. ``kind`` may be text: read, write,
        trim, flush. ``len_bytes`` counts if there is no such column.
        """
    @staticmethod
    def generate(workload: str, *, pages: int = 65536, page_bytes: int = 4096, seed: int = 1) -> Trace:
        """A generated trace in memory, as ``margay generate`` writes it: ``"zipf:0.99,writes=100000"``."""
    @property
    def name(self) -> str:
        """Its name in results."""
    @property
    def path(self) -> str | None:
        """Its file, if it is in one."""
    def __len__(self) -> int:
        """The number of requests. A file is read to its end the first time."""
    def __getitem__(self, part: slice, /) -> Trace:
        """Requests in a row, in memory."""
    def info(self, *, page_bytes: int = 4096) -> dict[str, Any]:
        """The statistics of ``margay trace info --json``; pages are of ``page_bytes`` bytes."""
    def volumes(self) -> Table:
        """One row for each volume: ``device`` (number), ``name``, ``reads``, ``writes`` (requests), ``end_bytes``."""
    def save(self, path: str | PathLike[str], *, format: str = "mgt", force: bool = False) -> int:
        """Write it to a file, which the command reads. An existing file is replaced only with ``force``. Returns the requests."""
    def __arrow_c_stream__(self, requested_schema: object = None) -> object: ...
    def __reduce__(self) -> tuple[object, tuple[str, str, bytes]]: ...
    @staticmethod
    def _restored(name: str, table: str, requests: bytes) -> Trace: ...

@final
class Result:
    """What one run cost. ``result["copies"]`` is a scalar of :attr:`row`."""

    @property
    def row(self) -> dict[str, Any]:
        """The scalars by the names of the command's JSON.

        Counts are in pages unless the name says otherwise, times in the unit that the name ends with; ``forecast`` is a dictionary.
        """
    def __getitem__(self, name: str, /) -> Any: ...
    @property
    def wa(self) -> float:
        """Write amplification of the whole run: pages programmed / host page writes."""
    @property
    def wa_warm(self) -> float:
        """Write amplification of the warm window."""
    @property
    def settled(self) -> bool:
        """Whether write amplification had settled in the warm window."""
    @property
    def forecast(self) -> dict[str, Any]:
        """How long the flash lasts if the workload goes on so: years, and terabytes (10^12 bytes) written."""
    @property
    def series(self) -> Table:
        """The state over the run: one row for each of some hundred moments.

        ``host_writes`` (pages so far), ``time_s``, ``wa`` (since the row before), ``erases``, ``utilization``, ``invalidity``,
        ``uniformity``, ``erases_deviation``.
        """
    @property
    def segments(self) -> Table:
        """One row for each segment: ``segment`` (number), ``erases``."""
    @property
    def victims(self) -> Table:
        """One row for each number of valid pages that a victim can have: ``valid_pages``, ``victims`` (how many had it)."""
    @property
    def volumes(self) -> Table:
        """One row for each volume of a trace that has several; no row otherwise."""
    @property
    def table(self) -> Table:
        """One row, with the columns of the command's CSV and Parquet files."""
    def to_json(self) -> str:
        """What ``margay replay --format json`` prints."""
    @classmethod
    def from_json(cls, text: str) -> Result:
        """A result from its JSON."""
    def __reduce__(self) -> tuple[object, tuple[str]]: ...
    def __arrow_c_stream__(self, requested_schema: object = None) -> object: ...
    def _repr_html_(self) -> str: ...

@final
class Results(Sequence[Result]):
    """The results of several runs, in order."""

    @property
    def table(self) -> Table:
        """One row for each run, with the columns of the command's CSV and Parquet files.

        ``group_wa_warm`` and ``group_wa_warm_half95`` are the mean over the seeds of the same policies, and half its 95 % interval.
        """
    @property
    def left_out(self) -> list[str]:
        """Placements that were left out, because the device has too little spare room for their streams."""
    @property
    def advice(self) -> str:
        """Which policies to choose, in the words of ``margay compare``; empty if nothing can be said."""
    def to_json(self) -> str:
        """What ``margay compare --format json`` prints."""
    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> Result: ...  # type: ignore[override]
    def __reduce__(self) -> tuple[object, tuple[str, list[str]]]: ...
    @staticmethod
    def _restored(outcomes: str, left_out: Sequence[str]) -> Results: ...
    def __arrow_c_stream__(self, requested_schema: object = None) -> object: ...
    def _repr_html_(self) -> str: ...

@final
class Grid:
    """The points of a sweep, in an order that is always the same."""

    def __new__(cls, settings: Mapping[str, object], seeds: int | None = None) -> Grid: ...
    def __len__(self) -> int:
        """The number of points, seeds included."""
    def name(self, index: int) -> str:
        """What sets a point apart, for people."""
    def key(self, index: int) -> str:
        """Names a point among the points of all sweeps: the same for equal experiments."""
    def own_policies(self) -> list[str]:
        """The names of the policies of Python that the points use."""
    def run(self, index: int) -> str:
        """Run one point. Returns its row as JSON, without times of the wall clock."""
    def run_all(
        self, finished: str | PathLike[str] | None, restart: bool, jobs: int | None
    ) -> tuple[list[str | None], list[tuple[int, str]]]:
        """Run all points that ``finished`` does not hold. Returns the rows as JSON, and the points that failed with reasons."""
    def table(self, rows: Sequence[str | None]) -> Table:
        """The table of these rows, one for each point in order, as JSON; ``None`` for points that are not finished."""

@final
class PointRunner:
    """Runs points that came as text. Traces that were read are kept for the next points."""

    def __new__(cls, keep: int) -> PointRunner: ...
    def run(self, settings: str) -> str:
        """Run a point with these settings. Returns its row as JSON, without times of the wall clock."""

@final
class Finished:
    """The finished points of a sweep, on disk: the command's file ``OUTPUT.points``."""

    def __new__(cls, path: str | PathLike[str] | None = None, restart: bool = False) -> Finished: ...
    def __len__(self) -> int: ...
    @staticmethod
    def read(path: str | PathLike[str]) -> Finished:
        """The finished points of a file, which is only read, also while another process writes it. What is added is not kept."""
    def left(self, grid: Grid, numbers: Sequence[int] | None = None) -> list[int]:
        """The numbers of the points that are not finished, equal ones once: of all points, or of those with these numbers.

        Rows of traces that have changed since are forgotten.
        """
    def row(self, grid: Grid, index: int) -> str | None:
        """The row of a finished point, as JSON; None if its trace has changed since."""
    def rows(self, grid: Grid) -> list[str | None]:
        """The rows of all points in order, as JSON. :meth:`left` and :meth:`gather` look whether traces have changed."""
    def add(self, key: str, row: str) -> None:
        """Add the row of a finished point, given as JSON."""
    def gather(self, grid: Grid, files: Sequence[str | PathLike[str]]) -> None:
        """Add the finished points of ``grid`` that other files hold, which may be being written.

        Rows of traces that have changed since are passed over, and forgotten.
        """
    def sync(self) -> None:
        """Make sure that all is on disk."""

def point_settings(grid: Grid, index: int) -> str: ...
def settings_files(settings: str) -> list[tuple[str, str]]: ...
def file_hash(path: str | PathLike[str]) -> str: ...
def split_trace(path: str | PathLike[str], folder: str | PathLike[str]) -> list[tuple[str, Path, int]]: ...
def size_bytes(text: str) -> int: ...
def advice_point(
    settings: Mapping[str, object], selection: str, placement: str, leveling: str, over_provisioning: float
) -> Grid: ...
def policy_parameters(kind: str, name: str) -> list[dict[str, Any]]: ...
def advise(
    settings: Mapping[str, object],
    years: float,
    per_day: float | None,
    seeds: int | None,
    also: Sequence[tuple[str, str]],
    finished: Finished,
    jobs: int,
    runner: Callable[[Grid, Finished], list[tuple[int, str, str]]] | None,
) -> str: ...
def simulate(settings: Mapping[str, object]) -> Result: ...
def simulate_seeds(settings: Mapping[str, object], seeds: int, jobs: int | None) -> Results: ...
def compare(settings: Mapping[str, object], seeds: int | None, jobs: int | None, every: bool) -> Results: ...
def policies() -> list[dict[str, Any]]: ...
def options() -> list[dict[str, Any]]: ...
def paging_options() -> list[dict[str, Any]]: ...
def models() -> list[dict[str, Any]]: ...
def evaluate(name: str, parameters: Sequence[tuple[str, str]]) -> dict[str, float]: ...
def forecast(
    erases: Sequence[int], endurance_erases: int, worn_share: float, host_bytes: float, duration_s: float
) -> dict[str, Any]: ...
def vm_replay(words: Sequence[str]) -> Table: ...
def fs_replay(
    benchmark: str,
    allocator: str,
    segments: int | None,
    low_water: int | None,
    normal_cleaning: bool,
    lazy_deletion: bool,
    seed: int,
) -> dict[str, Any]: ...
def fs_model(
    utilization: float, invalidity: float, uniformity: float, device: str, segments: int | None
) -> dict[str, Any]: ...
def segment_maps(result: Result) -> dict[str, bytes]: ...

_U8: TypeAlias = npt.NDArray[np.uint8]
_U32: TypeAlias = npt.NDArray[np.uint32]
_U64: TypeAlias = npt.NDArray[np.uint64]

@final
class Segments:
    """The segments of the device at the moment of a cleaning: what a selection decides by.

    Every array has an element for each segment, in the order of segment numbers, and is a read-only view of the
    engine's own, without a copy. It may be kept: it then holds what it held during the call, for ever. The object
    itself is of use during the call only.
    """

    def __len__(self) -> int:
        """Number of segments of the device."""

    @property
    def data_pages(self) -> int:
        """Data pages in a segment."""

    @property
    def now_writes(self) -> int:
        """Host page writes so far."""

    @property
    def now_us(self) -> int:
        """Time of the workload, in microseconds."""

    @property
    def total_valid(self) -> int:
        """Valid pages of the device."""

    @property
    def total_erases(self) -> int:
        """Erases of all segments together."""

    @property
    def candidates(self) -> npt.NDArray[np.intp]:
        """The numbers of the segments that may be answered, ascending: those that are sealed and have an invalid
        page. There is at least one."""

    @property
    def valid(self) -> _U32:
        """Valid pages of each segment, from 0 to ``data_pages``. Pages of an open one not yet written count."""

    @property
    def erases(self) -> _U32:
        """Erases of each segment so far."""

    @property
    def state(self) -> _U8:
        """A :class:`margay.policy.State` for each segment."""

    @property
    def stream(self) -> _U8:
        """The stream that each segment was last opened for."""

    @property
    def opened_us(self) -> _U64:
        """Time of the workload when each was opened, in microseconds."""

    @property
    def opened_writes(self) -> _U64:
        """Host page writes when each was opened."""

    @property
    def opened_sequence(self) -> _U64:
        """The number of each one's opening, ascending over all openings."""

    @property
    def sealed_writes(self) -> _U64:
        """Host page writes when each was sealed."""

    @property
    def invalidated_us(self) -> _U64:
        """Time of the workload when each last lost a page, in microseconds. Only with ``needs_invalidations``."""

    @property
    def invalidated_writes(self) -> _U64:
        """Host page writes when each last lost a page. Only with ``needs_invalidations``."""

    @property
    def invalidated_sequence(self) -> _U64:
        """The number of the last loss of a page of each, ascending over all. Only with ``needs_invalidations``."""

@final
class Pages:
    """Pages that a placement decides on together. Every array has an element for each page, and is read-only; it may
    be kept."""

    def __len__(self) -> int:
        """Number of pages."""

    @property
    def now_writes(self) -> int:
        """Host page writes before the batch."""

    @property
    def now_us(self) -> int:
        """Time of the workload before the batch, in microseconds."""

    @property
    def lba(self) -> _U32:
        """Logical page numbers."""

    @property
    def kind(self) -> _U8:
        """A :class:`margay.policy.Kind` for each page. A batch holds copies, or host writes, never both."""

    @property
    def age(self) -> _U64:
        """Host page writes from the last write of the page by the host to the time for which it is placed; ``NEVER``
        if it is new."""

    @property
    def stream(self) -> _U8:
        """The stream of the segment that holds the page now; ``NOWHERE`` if it is new."""

    @property
    def segment_age(self) -> _U64:
        """Host page writes from the opening of that segment to the time for which the page is placed; ``NEVER`` if it
        is new."""

    @property
    def time_us(self) -> _U64:
        """Time of the workload for which the page is placed, in microseconds."""
