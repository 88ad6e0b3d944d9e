"""Tables of any library as columns of NumPy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from margay.errors import UsageError

Columns = dict[str, NDArray[Any]]


def column(values: Iterable[Any]) -> NDArray[Any]:
    """The values as an array: float64 (NaN where there is none) if they are numbers, else object."""
    cells = list(values)
    if all(
        cell is None or (isinstance(cell, (int, float, np.number)) and not isinstance(cell, bool)) for cell in cells
    ):
        return np.array([np.nan if cell is None else float(cell) for cell in cells], dtype=np.float64)
    return np.array([cell.item() if isinstance(cell, np.generic) else cell for cell in cells], dtype=object)


def _flat(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row in which the fields of nested objects are columns, as in the command's tables: ``forecast.years_first``."""
    out: dict[str, Any] = {}
    for key, value in row.items():
        if isinstance(value, Mapping):
            out.update({f"{key}.{name}": inner for name, inner in value.items()})
        else:
            out[key] = value
    return out


def _row(one: object) -> dict[str, Any] | None:
    """The row of a result, or of an object of the command's JSON; none if it is something else."""
    row = one.get("row", one) if isinstance(one, Mapping) else getattr(one, "row", None)
    return _flat(row) if isinstance(row, Mapping) else None


def _of_rows(rows: Sequence[object]) -> Columns:
    maps = [_row(one) for one in rows]
    known = [one for one in maps if one is not None]
    if len(known) < len(rows):
        kinds = sorted({type(one).__name__ for one, row in zip(rows, maps, strict=True) if row is None})
        raise UsageError(f"expected results or rows (dictionaries), not {', '.join(kinds)}")
    names = list(dict.fromkeys(name for row in known for name in row))
    return {name: column(row.get(name) for row in known) for name in names}


def columns(data: object) -> Columns:
    """The columns of a table, or of the rows of results.

    Takes a result or a list of results of margay, a table of margay, Arrow, polars or pandas (or what offers the Arrow
    PyCapsule interface, if pyarrow is installed), rows as dictionaries, or a dictionary of columns.
    """
    # Results and sweeps have their rows as a table.
    inner = getattr(data, "table", None)
    if inner is not None and not callable(inner) and hasattr(inner, "columns"):
        return columns(inner)
    if isinstance(data, Mapping) and not isinstance(data.get("row"), Mapping):
        first = next(iter(data.values()), None)
        if isinstance(first, (list, tuple, np.ndarray)):
            return {str(name): column(values) for name, values in data.items()}
    if isinstance(data, (list, tuple)):
        return _of_rows(data)
    if _row(data) is not None:
        return _of_rows([data])
    # pyarrow has names in `column_names`, and `columns` are its arrays.
    names = getattr(data, "column_names", None)
    if names is None:
        names = getattr(data, "columns", None)
    if names is not None and hasattr(data, "__getitem__"):
        found: Columns = {}
        for name in names:
            values = data[name]
            found[str(name)] = column(values.to_numpy() if hasattr(values, "to_numpy") else values)
        return found
    if hasattr(data, "__arrow_c_stream__") or hasattr(data, "__arrow_c_array__"):
        try:
            pyarrow = import_module("pyarrow")
        except ImportError:
            kind = type(data).__name__
            raise UsageError(f"a {kind} is read by pyarrow, which is not installed: pip install pyarrow") from None
        return columns(pyarrow.table(data))
    raise UsageError(f"expected a table, or results of margay, not {type(data).__name__}")
