"""Columns of lists of numbers become numbered columns, in every kind of table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import raydr
from raydr.data.loading import load
from raydr.data.table import Table
from raydr.errors import DataError

ROWS = 12
NUMBERS = np.random.default_rng(0).normal(size=(ROWS, 3)).round(3)
NAMES = ("emb.0", "emb.1", "emb.2", "age")


def read(path: Path, **given: Any) -> Table:
    return load(path=path, **{"categories": "one-hot", "missing": "mean", **given})


def write(path: Path, lists: Any) -> Path:
    pq.write_table(pa.table({"emb": lists, "age": np.arange(ROWS) / 7}), path)
    return path


@pytest.mark.parametrize(
    "kind", [pa.list_(pa.float64()), pa.large_list(pa.float32()), pa.list_(pa.float64(), 3)]
)
def test_lists_of_one_length_are_columns(kind: Any, tmp_path: Path) -> None:
    lists: list[Any] = NUMBERS.tolist()
    lists[2], lists[5][1] = None, None
    expected = NUMBERS.copy()
    expected[2], expected[5, 1] = np.nan, np.nan
    found = read(write(tmp_path / "t.parquet", pa.array(lists, kind)))
    assert found.features == NAMES
    np.testing.assert_allclose(found.rows[:, :3], expected, rtol=1e-6)
    assert "'emb': lists of 3 numbers, read as the columns 'emb.0' to 'emb.2'" in found.doubts[0]


@pytest.mark.parametrize(
    "spell", [str, lambda row: str(np.array(row)), lambda row: f"[{'; '.join(map(str, row))}]"]
)
def test_lists_in_text_are_columns(spell: Any, tmp_path: Path) -> None:
    table = pd.DataFrame({"emb": [spell(row) for row in NUMBERS.tolist()], "age": np.arange(ROWS) / 7})
    table.loc[2, "emb"] = None
    table.to_csv(tmp_path / "t.csv", index=False)
    found = read(tmp_path / "t.csv")
    assert found.features == NAMES
    expected = NUMBERS.copy()
    expected[2] = np.nan
    np.testing.assert_array_equal(found.rows[:, :3], expected)


@pytest.mark.parametrize("between", ["; ", " ", ", "])
def test_lists_with_decimal_commas_are_no_columns(between: str, tmp_path: Path) -> None:
    lists = [f"[{between.join(f'{number:.3f}' for number in row)}]".replace(".", ",") for row in NUMBERS]
    pd.DataFrame({"emb": lists, "age": np.arange(ROWS) / 7}).to_csv(tmp_path / "t.csv", index=False)
    assert read(tmp_path / "t.csv").features == ("age",)


def test_lists_can_be_excluded_and_others_are_refused_by_name(tmp_path: Path) -> None:
    ragged = write(tmp_path / "t.parquet", [[1.0], [1.0, 2.0]] * (ROWS // 2))
    with pytest.raises(DataError, match=r"'emb' holds list<.*> values. Only lists of numbers .* same length"):
        read(ragged)
    even = write(tmp_path / "even.parquet", pa.array(NUMBERS.tolist()))
    for path in (ragged, even):
        assert read(path, exclude=["emb"]).features == ("age",)
    pq.write_table(pa.table({"emb": NUMBERS.tolist(), "emb.0": np.arange(ROWS)}), even)
    with pytest.raises(DataError, match=r"more than one column named 'emb\.0'"):
        read(even)


@pytest.mark.parametrize("cells", [list, tuple, np.array])
def test_lists_in_frames_are_columns(cells: Any) -> None:
    table = pd.DataFrame({"age": np.arange(ROWS) / 7, "emb": [cells(row) for row in NUMBERS]})
    model = raydr.FedPCA(scale="none", metrics=()).fit(table)
    plain = pd.DataFrame(NUMBERS).assign(age=table["age"])[["age", 0, 1, 2]].to_numpy()
    expected = raydr.FedPCA(metrics=()).fit(plain)
    np.testing.assert_array_equal(model.embedding_, expected.embedding_)
    np.testing.assert_array_equal(model.transform(table), expected.transform(plain))
