"""Estimators on data frames as people have them: words, dates, missing values and labels."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

import raydr
from raydr.errors import DataError
from raydr.runfolder import read_run


def patients(rows: int = 90) -> pd.DataFrame:
    """Two groups, four columns that can be mapped, two that cannot, gaps, and three hospitals."""
    random = np.random.default_rng(0)
    group = np.arange(rows) % 2
    table = pd.DataFrame(
        {
            "age": random.normal(50 + 20 * group, 3.0),
            "stays": pd.array(random.integers(0, 4, rows), dtype="Int64"),
            "weight": [f"{value:.1f} kg" for value in random.normal(70 + 10 * group, 2.0)],
            "smoker": pd.Categorical(np.where(random.random(rows) < 0.2 + 0.6 * group, "yes", "no")),
            "seen": pd.date_range("2026-01-01", periods=rows),
            "name": [f"P{number:03}" for number in range(rows)],
            "hospital": np.array(["north", "east", "west"])[np.arange(rows) % 3],
            "ill": np.where(group == 1, "ill", "well").astype(object),
        }
    )
    table.loc[[3, 8], "age"] = np.nan
    table.loc[4, "smoker"] = np.nan
    table.loc[5, "ill"] = None
    return table


def fitted(table: Any, **settings: Any) -> Any:
    model = raydr.FedTSNE(
        label="ill", landmarks=20, rounds=2, scale="standard", federation="inline", metrics=(), **settings
    )
    return model.fit(table, sites="hospital")


def test_a_frame_is_read_as_raydr_map_reads_the_same_file(tmp_path: Path) -> None:
    table = patients()
    table.to_csv(tmp_path / "patients.csv", index=False)
    model = fitted(table, out=tmp_path / "fitted")
    of_file = raydr.map(
        tmp_path / "patients.csv",
        site="hospital",
        label="ill",
        method="fed-tsne",
        out=tmp_path / "mapped",
        method__landmarks=20,
        method__rounds=2,
        metrics=[],
        compare=[],
        runtime__federation="inline",
        runtime__checkpoint_every=0,
    )
    one, other = read_run(tmp_path / "fitted").data, read_run(tmp_path / "mapped").data
    assert one.columns == other.columns == ("age", "stays", "weight", "smoker=no", "smoker=yes")
    assert one.units == other.units == {"weight": "kg"}
    assert one.filled == other.filled
    np.testing.assert_array_equal(model.embedding_, of_file.embedding)


def test_new_rows_need_no_more_than_the_mapped_columns_and_may_have_gaps() -> None:
    table = patients()
    model = fitted(table)
    new = table.head(9).drop(columns=["name", "ill", "seen"])
    placed = model.transform(new)
    assert placed.shape == (9, 2)
    np.testing.assert_array_equal(model.transform(new.assign(other=1.0)), placed)
    with pytest.raises(DataError, match="unit"):
        model.transform(new.assign(weight=[f"{value} lb" for value in range(9)]))


def test_polars_and_lists_of_frames_are_read_alike() -> None:
    table = patients()
    whole = fitted(table)
    polars = fitted(pl.from_pandas(table))
    np.testing.assert_array_equal(polars.embedding_, whole.embedding_)
    parts = [part.drop(columns="hospital") for _, part in table.groupby("hospital")]
    model = raydr.FedTSNE(
        label="ill", landmarks=20, rounds=2, scale="standard", federation="inline", metrics=()
    )
    assert model.fit(parts).embedding_.shape == (90, 2)
    assert list(model.feature_names_in_) == list(parts[0].columns.drop("ill"))
    assert len(set(model.clients_)) == 3


def numbers(rows: int = 60) -> pd.DataFrame:
    random = np.random.default_rng(1)
    return pd.DataFrame(random.normal(size=(rows, 3)), columns=["age", "data.label", "seed"])


def quick(**settings: Any) -> Any:
    return raydr.FedTSNE(landmarks=12, rounds=2, federation="inline", metrics=(), **settings)


def test_complete_numbers_of_a_frame_are_surveyed_and_scaled() -> None:
    table = numbers()
    model = quick().fit(table.assign(patient_id=np.arange(60), hour=np.arange(60) % 24))
    assert model.result_.scenario["data"]["scale"] == "standard"
    assert model._layout.columns == ("age", "data.label", "seed", "hour")
    assert model._layout.codings["hour"].kind == "circular"
    read = read_run(model.result_.folder).data
    assert read.sources[0].left_out["patient_id"] == "an identity by its name"
    assert any("'hour': read as circular" in notice for notice in read.notices)
    bare = quick(scale="standard").fit(table.to_numpy()).embedding_
    np.testing.assert_array_equal(quick().fit(table).embedding_, bare)
    assert quick(metric="hamming").fit(table.round()).result_.scenario["data"]["scale"] == "none"


@pytest.mark.parametrize(
    "gap", [lambda y: np.where(np.arange(60) < 5, np.nan, y), lambda y: [None, *map(str, y[1:])]]
)
@pytest.mark.parametrize("rows", [numbers, lambda: numbers().to_numpy()])
def test_labels_may_be_partly_missing(gap: Any, rows: Any) -> None:
    found = quick().fit(rows(), gap(np.arange(60) % 2)).to_frame()["label"]
    assert set(found) == {"0", "1", "(none)"}
    assert found[0] == "(none)"


def test_rows_without_a_site_are_refused() -> None:
    sites = pd.Series(np.where(np.arange(60) % 2, "north", "south")).mask(lambda _: np.arange(60) == 7)
    with pytest.raises(DataError, match="1 rows without a site; the first is row 7"):
        quick().fit(numbers().assign(age=lambda table: table["age"].where(table.index > 3)), sites=sites)


@pytest.mark.parametrize(
    ("name", "cells"),
    [
        ("float16", lambda value: value.astype(np.float16)),
        ("int8", lambda value: (9 * value).astype(np.int8)),
        ("bool", lambda value: value > 0),
        ("object numbers", lambda value: pd.Series(value.round(2).tolist(), dtype=object)),
        ("object words", lambda value: np.where(value > 0, "f", "m").astype(object)),
        ("object mixed", lambda value: [None if each > 1 else each > 0 for each in value]),
        ("Int64", lambda value: pd.array(np.where(value > 1, None, (9 * value).round()), dtype="Int64")),
        ("Float64", lambda value: pd.array(np.where(value > 1, None, value), dtype="Float64")),
        ("boolean", lambda value: pd.array(np.where(value > 1, None, value > 0), dtype="boolean")),
        ("string", lambda value: pd.array(np.where(value > 0, "f", "m"), dtype="string")),
        ("category", lambda value: pd.Categorical(np.where(value > 0, "f", "m"))),
        ("category of numbers", lambda value: pd.Categorical((3 * value).round())),
        ("Decimal", lambda value: pd.Series([Decimal(str(round(each, 2))) for each in value])),
        ("arrow", lambda value: pd.array(value, dtype="double[pyarrow]")),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_every_type_of_column_is_mapped(name: str, cells: Any) -> None:
    table = numbers()
    table[name] = cells(table["age"].to_numpy())
    model = quick().fit(table)
    assert name in model._layout.columns
    assert model.transform(table.head(3)).shape == (3, 2)


@pytest.mark.parametrize(
    "cells",
    [pd.date_range("2026-01-01", periods=60), pd.to_timedelta(np.arange(60), unit="h")],
    ids=["dates", "durations"],
)
def test_dates_are_left_out_with_the_reason(cells: Any) -> None:
    model = quick().fit(numbers().assign(seen=cells))
    assert read_run(model.result_.folder).data.sources[0].left_out["seen"] == "dates or times"


@pytest.mark.parametrize(
    ("cells", "fault"),
    [
        (lambda: np.where(np.arange(60) == 4, np.inf, 1.5), "inf in 'odd' on row 4"),
        (lambda: np.arange(60) * 1j, "column odd with type complex128"),
    ],
    ids=["infinite", "complex"],
)
def test_other_columns_are_refused_by_name(cells: Any, fault: str) -> None:
    with pytest.raises(DataError, match=fault):
        quick().fit(numbers().assign(odd=cells()))


def test_columns_of_new_rows_are_matched_by_name() -> None:
    table = numbers().assign(sex=np.where(np.arange(60) % 3, "f", "m"))
    model = quick().fit(table)
    placed = model.transform(table)
    np.testing.assert_array_equal(model.transform(table[table.columns[::-1]].assign(more=1)), placed)
    with pytest.raises(DataError, match=r"1 of the 4 columns.*'seed'.*did you mean seeds"):
        model.transform(table.rename(columns={"seed": "seeds"}))
    with pytest.raises(DataError, match="more than one column named 'age'"):
        model.transform(table.rename(columns={"seed": "age"}))
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        np.testing.assert_array_equal(model.transform(table.to_numpy(dtype=object)), placed)
    with pytest.raises(ValueError, match="X has 3 features, but FedTSNE is expecting 4"):
        model.transform(numbers().to_numpy())
