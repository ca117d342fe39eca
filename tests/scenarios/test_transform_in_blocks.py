"""Placing files of any length in blocks gives the result of placing them at once."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from tiny import tiny_run

import raydr
from raydr.data.files import arrow_files
from raydr.errors import DataError
from raydr.journal import Event, Progress

FEATURES = ("sepal length (cm)", "sepal width (cm)", "petal length (cm)", "petal width (cm)")
BLOCK = 2**8
ROWS = 2 * BLOCK + 100


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow_files, "_BLOCK_CELLS", 0)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_run(tmp_path_factory.mktemp("placing") / "run", method={"kind": "fed-pca"})


@pytest.fixture(scope="module")
def with_ids(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a run with ids, dropped rows and a text column."""
    home = tmp_path_factory.mktemp("ids")
    rng = np.random.default_rng(1)
    pq.write_table(
        pa.table(
            {
                "patient": [f"p{row}" for row in range(60)],
                "age": rng.normal(size=60),
                "size": rng.normal(size=60),
                "sex": ["f", "m"] * 30,
            }
        ),
        home / "data.parquet",
    )
    settings = {
        "data": {
            "path": str(home / "data.parquet"),
            "id": "patient",
            "missing": "drop",
            "categories": "one-hot",
        },
        "method": {"kind": "fed-pca"},
    }
    return tiny_run(home / "run", **settings)


def new_rows(count: int = ROWS) -> np.ndarray[Any, np.dtype[np.float64]]:
    return np.random.default_rng(0).normal(3.0, 2.0, (count, len(FEATURES)))


def parquet(path: Path, rows: Any, **more: Any) -> Path:
    pq.write_table(pa.table({**dict(zip(FEATURES, rows.T, strict=True)), **more}), path)
    return path


def test_blocks_give_the_bits_of_one_read(run: Path, tmp_path: Path) -> None:
    rows = new_rows()
    np.savez(tmp_path / "new.npz", X=rows, feature_names=np.array(FEATURES))
    raydr.transform(run, tmp_path / "new.npz", out=tmp_path / "at-once.parquet")
    reported: list[Event] = []
    raydr.transform(
        run, parquet(tmp_path / "new.parquet", rows), out=tmp_path / "parts.parquet", listener=reported.append
    )
    parts = pq.read_table(tmp_path / "parts.parquet")
    assert parts.equals(pq.read_table(tmp_path / "at-once.parquet"))
    assert parts["row"].to_pylist() == list(range(ROWS))
    counts = [(event.done, event.total) for event in reported if isinstance(event, Progress)]
    assert counts == [(BLOCK, ROWS), (2 * BLOCK, ROWS), (ROWS, ROWS)]
    raydr.transform(run, tmp_path / "new.parquet", out=tmp_path / "parts.csv")
    assert pyarrow.csv.read_csv(tmp_path / "parts.csv").equals(parts)


def test_folder_has_a_file_per_site(run: Path, tmp_path: Path) -> None:
    (tmp_path / "sites").mkdir()
    rows = new_rows(7)
    parquet(tmp_path / "sites" / "north.parquet", rows[:4])
    np.savetxt(
        tmp_path / "sites" / "south.csv",
        rows[4:],
        delimiter=",",
        header=",".join(FEATURES),
        comments="",
        fmt="%.17g",
    )
    parquet(tmp_path / "all.parquet", rows)
    raydr.transform(run, tmp_path / "sites", out=tmp_path / "sites.parquet")
    raydr.transform(run, tmp_path / "all.parquet", out=tmp_path / "one.parquet")
    placed, one = pq.read_table(tmp_path / "sites.parquet"), pq.read_table(tmp_path / "one.parquet")
    assert placed["client"].to_pylist() == ["north"] * 4 + ["south"] * 3
    assert placed["row"].to_pylist() == [0, 1, 2, 3, 0, 1, 2]
    assert placed.select(["x", "y"]).equals(one.select(["x", "y"]))
    assert "client" not in one.column_names
    raydr.transform(run, str(tmp_path / "sites" / "*.parquet"), out=tmp_path / "pattern.parquet")
    assert pq.read_table(tmp_path / "pattern.parquet")["client"].to_pylist() == ["north"] * 4


def test_unknown_columns_are_named_once(run: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    data = parquet(tmp_path / "new.parquet", new_rows(), ward=np.arange(float(ROWS)))
    raydr.transform(run, data, out=tmp_path / "out.parquet")
    said = [record.getMessage() for record in caplog.records if "ward" in record.getMessage()]
    assert said == [f"{data}: columns that the run did not have are ignored: 'ward'"]


def test_file_without_rows_gives_no_places(run: Path, tmp_path: Path) -> None:
    raydr.transform(run, parquet(tmp_path / "none.parquet", new_rows(0)), out=tmp_path / "out.parquet")
    assert pq.read_table(tmp_path / "out.parquet").num_rows == 0


def patients(path: Path, count: int = ROWS, **instead: Callable[[list[Any]], None]) -> Path:
    """Write a file of patients with some changed columns."""
    rng = np.random.default_rng(2)
    columns: dict[str, list[Any]] = {
        "patient": [f"q{row}" for row in range(count)],
        "size": rng.normal(size=count).tolist(),
        "sex": ["m", "f"] * (count // 2),
        "age": rng.normal(size=count).tolist(),
    }
    for name, change in instead.items():
        change(columns[name])
    pq.write_table(pa.table(columns), path)
    return path


def test_row_ids_are_kept_and_incomplete_rows_dropped(with_ids: Path, tmp_path: Path) -> None:
    def lose(values: list[Any]) -> None:
        values[0] = values[BLOCK + 3] = None

    raydr.transform(with_ids, patients(tmp_path / "new.parquet", age=lose), out=tmp_path / "out.parquet")
    kept = [f"q{row}" for row in range(ROWS) if row not in (0, BLOCK + 3)]
    assert pq.read_table(tmp_path / "out.parquet")["row"].to_pylist() == kept


def test_repeated_ids_in_different_blocks_are_refused(with_ids: Path, tmp_path: Path) -> None:
    def repeat(values: list[Any]) -> None:
        values[2 * BLOCK + 7] = "q5"

    out = tmp_path / "out.parquet"
    with pytest.raises(
        DataError, match=rf"id in column 'patient' is on row 5 and again on row {2 * BLOCK + 7} "
    ):
        raydr.transform(with_ids, patients(tmp_path / "new.parquet", patient=repeat), out=out)
    assert list(tmp_path.iterdir()) == [tmp_path / "new.parquet"]


def test_errors_name_the_row_in_the_file(run: Path, tmp_path: Path) -> None:
    rows = new_rows()
    rows[BLOCK + 9, 2] = np.inf
    with pytest.raises(DataError, match=rf"'petal length \(cm\)' on row {BLOCK + 9} \(the first is row 0\)"):
        raydr.transform(run, parquet(tmp_path / "new.parquet", rows), out=tmp_path / "out.parquet")
    assert not (tmp_path / "out.parquet").exists()


def test_notices_are_printed_once(with_ids: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def other(values: list[Any]) -> None:
        values[BLOCK + 1] = values[2 * BLOCK + 1] = "x"

    with caplog.at_level(logging.WARNING):
        raydr.transform(with_ids, patients(tmp_path / "new.parquet", sex=other), out=tmp_path / "out.csv")
    assert [record.getMessage() for record in caplog.records] == [
        "new.parquet: the column 'sex' holds 'x', which the map does not have. Such a row counts as none of 'f', 'm'"
    ]


def test_files_with_different_id_types_are_refused(with_ids: Path, tmp_path: Path) -> None:
    (tmp_path / "sites").mkdir()
    patients(tmp_path / "sites" / "a.parquet", 4)
    numbered = pq.read_table(patients(tmp_path / "b.parquet", 4)).drop(["patient"])
    pq.write_table(numbered, tmp_path / "sites" / "b.parquet")
    with pytest.raises(DataError, match=r"b\.parquet identifies rows by numbers, but earlier files by text"):
        raydr.transform(with_ids, tmp_path / "sites", out=tmp_path / "out.parquet")
    assert not (tmp_path / "out.parquet").exists()
