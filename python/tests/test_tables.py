from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import duckdb
import margay
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers import WALL_TIMES, Run


@pytest.fixture(scope="module")
def result() -> margay.Result:
    return margay.simulate("hot-cold:90/10", device="spi-nor-16mb", device_writes=3)


def test_tables_go_to_other_libraries_as_they_are(result: margay.Result) -> None:
    series = result.series
    assert pl.DataFrame(series).height == len(series)
    assert pa.table(series).num_rows == len(series)
    assert pa.record_batch(series).num_rows == len(series)
    assert pa.schema(series).names == series.columns
    frame = pd.DataFrame(pa.table(series).to_pandas())
    assert list(frame["erases"]) == list(series["erases"])
    relation: Any = duckdb.sql("select max(erases), count(*) from series")
    assert relation.fetchall() == [(int(series["erases"].max()), len(series))]
    # Results, comparisons and sweeps are tables themselves.
    assert pl.DataFrame(result)["copies"][0] == result["copies"]


def test_the_row_has_the_columns_and_kinds_of_the_command_s_files(
    run: Run, tmp_path: Path, result: margay.Result
) -> None:
    words = ["replay", "hot-cold:90/10", "-d", "spi-nor-16mb", "--device-writes", "3", "-q"]
    run(*words, "-f", "parquet", "-o", tmp_path / "row.parquet")
    said = pq.read_table(tmp_path / "row.parquet")
    mine = pa.table(result.table)
    assert mine.schema.names == said.schema.names
    assert [field.type for field in mine.schema] == [field.type for field in said.schema]
    kept = [name for name in mine.schema.names if name not in WALL_TIMES]
    assert mine.select(kept).to_pylist() == said.select(kept).to_pylist()
    header = next(csv.reader(io.StringIO(run(*words, "-f", "csv").stdout)))
    assert header == result.table.columns


def test_columns_are_arrays_of_numpy(result: margay.Result) -> None:
    segments = result.segments
    assert segments["erases"].dtype == np.uint64
    assert segments["erases"].shape == (result["segments"],)
    assert segments["segment"].tolist() == list(range(result["segments"]))
    assert int(segments["erases"].sum()) == result["erases"]
    assert result.series["wa"].dtype == np.float64
    victims = result.victims
    assert victims["victims"].sum() > 0
    assert len(victims) == result["data_pages_per_segment"] + 1
    table = result.table
    assert table["selection"].tolist() == ["greedy"]
    assert table["settled"].dtype == np.bool_
    # No value is no number.
    assert np.isnan(table["forecast.years_first"]).all()
    with pytest.raises(KeyError, match="there is no column 'wrong'"):
        table["wrong"]
    with pytest.raises(KeyError, match="there is no scalar"):
        result["wrong"]


def test_rows_are_dictionaries(result: margay.Result) -> None:
    [row] = result.table.rows()
    assert row["host_writes"] == result["host_writes"]
    assert row["forecast.years_first"] is None
    assert row["forecast.years_first"] == result.forecast["years_first"]


def test_a_notebook_shows_results_and_no_text_of_a_trace_as_markup(tmp_path: Path) -> None:
    trace = margay.Trace.from_numpy(np.arange(200, dtype=np.uint64) % 40 * 4096, name="<script>")
    result = margay.simulate(trace, repeat=3)
    compared = margay.compare(trace, selection=["greedy", "fifo"], placement="m1", repeat=3)
    for shown in (result, result.table, compared, compared.table):
        html = shown._repr_html_()
        assert html.startswith("<table>")
        assert "<script>" not in html
    assert "&lt;script&gt;" in result._repr_html_()


def test_a_table_lives_on_when_its_result_is_gone() -> None:
    def frame() -> Any:
        return pl.DataFrame(margay.simulate("random", device="spi-nor-16mb", device_writes=1).segments)

    assert frame()["erases"].sum() >= 0
