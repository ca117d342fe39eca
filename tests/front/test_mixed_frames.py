"""Estimators on data frames as people have them: words, dates, missing values and labels."""

from __future__ import annotations

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


def test_frames_of_complete_numbers_are_read_as_arrays() -> None:
    table = patients()[["age", "hospital"]].dropna()
    table["other"] = np.arange(len(table)) % 7
    numbers = table[["age", "other"]]
    model = raydr.FedTSNE(landmarks=20, rounds=2, federation="inline", metrics=())
    np.testing.assert_array_equal(
        model.fit(numbers, sites=table["hospital"]).embedding_,
        model.fit(numbers.to_numpy(), sites=table["hospital"].to_numpy()).embedding_,
    )
