"""New rows are placed by column names and the stored model, or refused."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from placed import irises
from tiny import tiny_run

import raydr
from raydr.arrays import FloatArray
from raydr.data.provenance import sha256_of_file
from raydr.errors import DataError, OutputError, RaydrError
from raydr.front.cli import status
from raydr.methods.novelty import MOMENTS
from raydr.runfolder.model import digest_of, read_model
from raydr.scenarios.afterwards.transforming import require_positions

FEATURES = ("age", "glucose", "bmi", "insulin", "3")
SHORT: dict[str, Any] = {"early_iterations": 5, "iterations": 5}
FEDNE: dict[str, Any] = {"kind": "fedne", "rounds": 2, "hidden": [8], "local_steps": 2}
SENSE: dict[str, Any] = {"kind": "sense", "anchors": 6, "embedder": {"kind": "tsne", **SHORT}}
METHODS = {"fedne": FEDNE, "sense": SENSE, "fed-tsne": {"kind": "fed-tsne", **SHORT}}
UNUSED = {"anchors", "landmarks"}
"""Arrays of a model that place no new rows."""


def patients() -> dict[str, list[Any]]:
    """Return a table with a numeric label, an owner and a numeric id."""
    rng = np.random.default_rng(0)
    scales = (10.0, 30.0, 4.0, 100.0, 1.0)
    columns: dict[str, list[Any]] = {
        name: (rng.normal(size=60) * scale + scale).round(3).tolist()
        for name, scale in zip(FEATURES, scales, strict=True)
    }
    return columns | {
        "class": [row % 3 for row in range(60)],
        "hospital": [("north", "east", "west")[row % 3] for row in range(60)],
        "number": [1000 + row for row in range(60)],
    }


def write_csv(path: Path, columns: dict[str, list[Any]], order: Sequence[str] | None = None) -> Path:
    names = list(order or columns)
    rows = zip(*(columns[name] for name in names), strict=True)
    path.write_text("\n".join([",".join(names), *(",".join(map(str, row)) for row in rows)]) + "\n")
    return path


@pytest.fixture(scope="module", params=["fedne", "sense", "fed-tsne"])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a run of a table with label, client and id columns and one unmapped column."""
    folder = tmp_path_factory.mktemp(request.param)
    table = write_csv(folder / "patients.csv", patients() | {"ward": list(range(60))})
    data = {
        "path": str(table),
        "label": "class",
        "id": "number",
        "features": list(FEATURES),
        "scale": "standard",
    }
    partition = {"partition": {"kind": "by-column", "column": "hospital"}}
    return tiny_run(folder / "run", data=data, clients=partition, method=METHODS[request.param])


def placed(run: Path, table: Path) -> FloatArray:
    """Return the places of the rows of a file, (rows, 2)."""
    out = table.with_name("placed.parquet")
    raydr.transform(run, table, out=out)
    content = pq.read_table(out)
    return np.column_stack([content["x"].to_numpy(), content["y"].to_numpy()])


def refusal(run: Path, table: Path) -> str:
    """Return the one paragraph of the error; no file is written."""
    with pytest.raises(RaydrError) as caught:
        raydr.transform(run, table, out=table.with_name("refused.csv"))
    assert caught.value.exit_code == 2
    assert "\n" not in str(caught.value)
    assert not table.with_name("refused.csv").exists()
    return str(caught.value)


# --- columns --------------------------------------------------------------------------------------------------------


def test_column_order_does_not_matter(run: Path, tmp_path: Path) -> None:
    table = patients()
    as_before = placed(run, write_csv(tmp_path / "same.csv", table))
    shuffled = [*FEATURES[::-1], "number", "class", "hospital"]
    np.testing.assert_array_equal(placed(run, write_csv(tmp_path / "other.csv", table, shuffled)), as_before)
    features = write_csv(tmp_path / "bare.csv", table, FEATURES)
    np.testing.assert_array_equal(placed(run, features), as_before)
    pq.write_table(pa.table({name: table[name] for name in shuffled}), tmp_path / "other.parquet")
    np.testing.assert_array_equal(placed(run, tmp_path / "other.parquet"), as_before)
    X = np.column_stack([table[name] for name in FEATURES[::-1]])
    np.savez(tmp_path / "other.npz", X=X, feature_names=np.array(FEATURES[::-1]), y=table["class"])
    np.testing.assert_array_equal(placed(run, tmp_path / "other.npz"), as_before)


def test_row_ids_of_the_file_are_kept(run: Path, tmp_path: Path) -> None:
    for order, first in ((["number", *FEATURES], 1000), (FEATURES, 0)):
        raydr.transform(run, write_csv(tmp_path / "new.csv", patients(), order), out=tmp_path / "placed.csv")
        assert (tmp_path / "placed.csv").read_text().splitlines()[1].startswith(f"{first},")


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_names_are_not_formulas_in_csv_output(run: Path, tmp_path: Path, suffix: str) -> None:
    names = ["=1+2", "+1", "@SUM(A1)", *(f"p{row}" for row in range(57))]
    table = write_csv(tmp_path / "new.csv", patients() | {"number": names})
    raydr.transform(run, table, out=tmp_path / f"placed{suffix}")
    if suffix == ".csv":
        text = (tmp_path / "placed.csv").read_text().splitlines()
        found = [line.split(",")[0].strip('"') for line in text[1:]]
        assert found == ["'=1+2", "+1", "'@SUM(A1)", *names[3:]]
    else:
        assert pq.read_table(tmp_path / "placed.parquet")["row"].to_pylist() == names


@pytest.mark.parametrize(
    ("renamed", "message"),
    [
        (
            "Glucose",
            "does not have 1 of the 5 columns of the run in {run}: 'glucose' (did you mean Glucose?)",
        ),
        ("gluccose", "'glucose' (did you mean gluccose?)"),
        ("label", "'glucose'. Columns are matched by name"),
    ],
)
def test_renamed_column_is_refused(run: Path, tmp_path: Path, renamed: str, message: str) -> None:
    table = patients()
    table[renamed] = table.pop("glucose")
    paragraph = refusal(run, write_csv(tmp_path / "new.csv", table))
    assert message.format(run=run).split(". Columns")[0] in paragraph
    assert "Its other columns are " in paragraph


def test_missing_column_is_refused_even_if_the_label_could_replace_it(run: Path, tmp_path: Path) -> None:
    names = [*FEATURES[:-1], "class"]  # as many columns of numbers as the run had features
    assert "does not have 1 of the 5 columns" in refusal(
        run, write_csv(tmp_path / "new.csv", patients(), names)
    )


TOO_FEW = r"The map has \d+ rows to compare with, too few to call a row novel at 0.05: that takes 99.\n"


def test_extra_columns_are_ignored_with_a_notice(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    known = write_csv(tmp_path / "known.csv", patients() | {"ward": list(range(60))})
    new = write_csv(tmp_path / "new.csv", {"height": list(range(60))} | patients() | {"note": ["a"] * 60})
    for table, message in (
        (known, ""),
        (new, f"{new}: columns that the run did not have are ignored: 'height', 'note'\n"),
    ):
        assert status(["transform", str(run), str(table), "--out", str(tmp_path / "placed.csv")]) == 0
        out, told = capsys.readouterr()
        assert (out, re.sub(TOO_FEW, "", told)) == (f"{tmp_path / 'placed.csv'}\n", message)


def test_unnamed_columns_are_refused_if_the_run_has_names(run: Path, tmp_path: Path) -> None:
    X = np.column_stack([patients()[name] for name in FEATURES])
    np.save(tmp_path / "new.npy", X)
    np.savez(tmp_path / "new.npz", X=X)
    for name in ("new.npy", "new.npz"):
        message = refusal(run, tmp_path / name)
        assert (
            f"{name} has 5 columns without names, but the run in {run} has 5, with the names 'age'" in message
        )


def test_unnamed_columns_are_matched_by_count(tmp_path: Path) -> None:
    X = np.random.default_rng(0).normal(size=(40, 4))
    np.save(tmp_path / "rows.npy", X)
    folder = tiny_run(tmp_path / "run", data={"path": str(tmp_path / "rows.npy")}, method=FEDNE)
    as_before = placed(folder, tmp_path / "rows.npy")
    np.savez(tmp_path / "new.npz", X=X, y=np.arange(40) % 2)
    np.testing.assert_array_equal(placed(folder, tmp_path / "new.npz"), as_before)
    # Numbers as names identify the columns.
    named = {f"x{column}": X[:, column].tolist() for column in (3, 1, 0, 2)}
    np.testing.assert_allclose(placed(folder, write_csv(tmp_path / "new.csv", named)), as_before, rtol=1e-6)
    for columns in (3, 5):
        np.save(tmp_path / "other.npy", X[:, [0, 1, 2, 3, 0][:columns]])
        assert f"has {columns} columns without names" in refusal(folder, tmp_path / "other.npy")
    assert "does not have 4 of the 4 columns" in refusal(
        folder, write_csv(tmp_path / "other.csv", {"a": [1.0], "b": [2.0]})
    )


def test_built_in_data_sets_have_column_names(tmp_path: Path) -> None:
    from raydr.data import load

    folder = tiny_run(tmp_path / "run", method=FEDNE)
    iris = load(source="iris")
    columns = {name: iris.rows[:, index].tolist() for index, name in enumerate(iris.features)}
    table = write_csv(tmp_path / "iris.csv", columns, iris.features[::-1])
    np.testing.assert_allclose(placed(folder, table), raydr.Result(folder).embedding, atol=1e-3)


@pytest.mark.parametrize("run", ["sense"], indirect=True)
def test_output_does_not_depend_on_set_order(run: Path, tmp_path: Path) -> None:
    """Python orders sets of text by a hash seed; those of this process and of another give the same file."""
    table = write_csv(tmp_path / "new.csv", patients())
    raydr.transform(run, table, out=tmp_path / "here.csv")
    out = tmp_path / "other.csv"
    arguments = ["-m", "raydr", "transform", str(run), str(table), "--out", str(out)]
    subprocess.run(
        [sys.executable, *arguments],
        check=True,
        env={**os.environ, "PYTHONHASHSEED": "1"},
        capture_output=True,
    )
    assert out.read_bytes() == (tmp_path / "here.csv").read_bytes()


# --- rows -----------------------------------------------------------------------------------------------------------


def test_missing_values_are_refused_or_dropped_as_in_the_run(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = patients()
    table["bmi"][7] = ""
    table["class"][8] = ""  # not read here
    new = write_csv(tmp_path / "new.csv", table)
    message = refusal(run, new)
    assert "'bmi' on line 9. Fill them in, or drop those rows." in message
    dropping = tiny_run(
        tmp_path / "dropping", data={"path": str(new), "label": "class", "missing": "drop"}, clients={"count": 2},
        method=FEDNE, **{"data__features": list(FEATURES)},
    )  # fmt: skip
    assert status(["transform", str(dropping), str(new), "--out", str(tmp_path / "out.csv")]) == 0
    assert "dropped 1 rows with missing values" in capsys.readouterr().err
    assert len((tmp_path / "out.csv").read_text().splitlines()) == 60


def test_overflowing_rows_are_refused(tmp_path: Path) -> None:
    folder = tiny_run(tmp_path / "run", method=FEDNE)
    from raydr.data import load

    names = load(source="iris").features
    far = write_csv(tmp_path / "far.csv", {name: [1.0, 1e308] for name in names})
    assert "no place on the map, first row 1" in refusal(folder, far)


def test_a_row_has_a_place_if_all_its_coordinates_can_be_drawn() -> None:
    table = irises().take(np.arange(10, 14))
    places = np.zeros((4, 2))
    require_positions(table, places)
    for strange in (np.nan, np.inf, -1e31):
        places[2, 1] = strange
        with pytest.raises(DataError, match="1 rows have no place on the map, first row 12"):
            require_positions(table, places)


# --- what is written ------------------------------------------------------------------------------------------------


def test_output_is_written_completely_or_not_at_all(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = write_csv(tmp_path / "new.csv", patients())
    out = tmp_path / "placed.csv"
    out.write_text("before")

    class Full:
        """Write a header line and then fail."""

        def __init__(self, path: Path, _: Any) -> None:
            path.write_text("row,x")

        def write_table(self, _: Any) -> None:
            raise OSError(28, "No space left on device")

        def close(self) -> None:
            """Close without writing."""

    with monkeypatch.context() as patch:
        patch.setattr("pyarrow.csv.CSVWriter", Full)
        with pytest.raises(OutputError, match=r"placed\.csv cannot be written \(No space left on device\)"):
            raydr.transform(run, table, out=out)
    assert out.read_text() == "before"
    raydr.transform(run, table, out=out)
    assert {entry.name for entry in tmp_path.iterdir()} == {"new.csv", "placed.csv"}
    with pytest.raises(OutputError, match="cannot be written"):
        raydr.transform(run, table, out=out / "below.csv")


# --- the model ------------------------------------------------------------------------------------------------------


def test_model_card_describes_its_inputs(run: Path) -> None:
    card = read_model(run).card
    assert card.columns == FEATURES
    assert set(card.left_out) == {"class", "hospital", "number", "ward"}
    assert card.raydr == version("raydr")
    assert set(card.files) == {entry.name for entry in (run / "model").iterdir()} - {"model.json"}


@pytest.mark.usefixtures("edits_accepted")
def test_damaged_model_files_are_refused(run: Path, tmp_path: Path) -> None:
    """With any flipped bit, truncation or missing file, no row is placed."""
    table = write_csv(tmp_path / "new.csv", patients())
    as_before = placed(run, table)
    draw = random.Random(0)
    copy = tmp_path / "copy"
    shutil.copytree(run, copy)
    for name in ("model/arrays.npz", "model/encoder.safetensors", "model/model.json", "scenario.yaml"):
        file = copy / name
        if not file.exists():
            continue
        whole = file.read_bytes()
        damages = [b"", whole[:-1], whole + b" ", whole[: len(whole) // 2]]
        for _ in range(5):
            flipped = bytearray(whole)
            flipped[draw.randrange(len(whole))] ^= 1 << draw.randrange(8)
            damages.append(bytes(flipped))
        for damage in damages:
            file.write_bytes(damage)
            if name == "model/model.json" and same_content(damage, whole):
                np.testing.assert_array_equal(placed(copy, table), as_before)
            else:
                refusal(copy, table)
        file.unlink()
        refusal(copy, table)
        file.write_bytes(whole)
    assert len(placed(copy, table)) == 60


def same_content(text: bytes, other: bytes) -> bool:
    """Return whether two texts are equal JSON up to white space."""
    try:
        return bool(json.loads(text) == json.loads(other))
    except ValueError:
        return False


def forged(run: Path, arrays: dict[str, Any], **card: Any) -> None:
    """Write arrays that were not fitted, with correct hashes."""
    content = json.loads((run / "model" / "model.json").read_text())
    with (run / "model" / "arrays.npz").open("wb") as file:
        np.savez(file, **arrays)
    (run / "model" / "encoder.safetensors").unlink(missing_ok=True)
    del content["sha256"]
    content |= {
        "files": {"arrays.npz": sha256_of_file(run / "model" / "arrays.npz")},
    } | card
    (run / "model" / "model.json").write_text(json.dumps({"sha256": digest_of(content), **content}))


@pytest.mark.usefixtures("edits_accepted")
def test_model_with_wrong_arrays_is_refused(run: Path, tmp_path: Path) -> None:
    table = write_csv(tmp_path / "new.csv", patients())
    copy = tmp_path / "copy"
    shutil.copytree(run, copy)
    arrays = read_model(run).arrays
    for name in arrays:
        forged(copy, {other: values for other, values in arrays.items() if other != name})
        if name not in {*UNUSED, MOMENTS}:  # without these, columns are not compared
            refusal(copy, table)
        for wrong in (arrays[name] * np.nan, arrays[name].ravel()[:-1], arrays[name].astype(str)):
            forged(copy, arrays | {name: wrong})
            if name not in UNUSED or wrong.dtype.kind != "f" or np.isnan(wrong).any():
                refusal(copy, table)
    forged(copy, arrays, format=2)
    assert "in format 2, but raydr" in refusal(copy, table)
    forged(copy, arrays, format=1, columns=list(FEATURES[:4]))
    assert "must have one number for each of 4 columns" in refusal(copy, table)
    forged(copy, arrays, columns=list(FEATURES))
    assert len(placed(copy, table)) == 60


@pytest.mark.usefixtures("edits_accepted")
def test_model_belongs_to_one_scenario(run: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(run, copy)
    scenario = copy / "scenario.yaml"
    scenario.write_text(scenario.read_text().replace("scale: standard", "scale: none"))
    assert "is not the scenario that it was made from" in refusal(
        copy, write_csv(tmp_path / "new.csv", patients())
    )


@pytest.mark.usefixtures("edits_accepted")
def test_pickled_arrays_are_never_opened(run: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(run, copy)
    forged(copy, {"shift": np.array([Bomb()], dtype=object)})
    assert "model" in refusal(copy, write_csv(tmp_path / "new.csv", patients()))
    assert not Bomb.went_off


class Bomb:
    """Record when it is unpickled."""

    went_off = False

    def __reduce__(self) -> Any:
        return setattr, (Bomb, "went_off", True)


def test_unreadable_new_rows_raise_data_error(run: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be opened"):
        raydr.transform(run, tmp_path / "nowhere.csv", out=tmp_path / "placed.csv")
