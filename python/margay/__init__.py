"""Flash memory management, measured by the code that runs it.

The engine, the settings and the rows are those of the command ``margay``: a keyword is an option of the command, with
underscores for its hyphens, and a result has the columns that the command writes.

    >>> import margay
    >>> result = margay.simulate("hot-cold:90/10", device="spi-nor-16mb", selection="cat", device_writes=2)
    >>> round(result.wa, 2)
    4.85

Tables go to polars, pandas, DuckDB and pyarrow as they are: ``polars.DataFrame(result.series)``.
"""

from __future__ import annotations

from margay import fs, policy, vm
from margay._advise import Advice, advise
from margay._margay import Device, Grid, Result, Results, Table, Trace, __version__
from margay._other import forecast, model, models, options, policies
from margay._run import Sweep, compare, grid, simulate, sweep
from margay.errors import Error, InputError, PolicyError, RunError, UsageError
from margay.files import fetch
from margay.jobs import SweepJobs, VolumeSweep, split, sweep_volumes

__all__ = [
    "Advice",
    "Device",
    "Error",
    "Grid",
    "InputError",
    "PolicyError",
    "Result",
    "Results",
    "RunError",
    "Sweep",
    "SweepJobs",
    "Table",
    "Trace",
    "UsageError",
    "VolumeSweep",
    "__version__",
    "advise",
    "compare",
    "fetch",
    "forecast",
    "fs",
    "grid",
    "model",
    "models",
    "options",
    "policies",
    "policy",
    "simulate",
    "split",
    "sweep",
    "sweep_volumes",
    "vm",
]
