"""Missing values are filled with the statistics of the pooled rows, for every partition; no row leaves its client."""

from __future__ import annotations

import json
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from inline_federations import cut, federate
from patients import SENSE, patients, settings, write_sites
from requests_for_tests import HandOver
from tiny import tiny_run, tiny_scenario

import raydr
from raydr.arrays import Float64Array, FloatArray
from raydr.data import load
from raydr.data.loading import FILLINGS, NO_LABEL, Filling
from raydr.errors import DataError, OutputError, ScenarioError
from raydr.front.cli import status
from raydr.front.own_data import own_data
from raydr.journal import Event, RoundEnded
from raydr.privacy.ledger import Granularity
from raydr.report.run import mapped
from raydr.runfolder import read_run
from raydr.runfolder.model import digest_of, read_model
from raydr.scenarios.planning.plan import plan_of_scenario
from raydr.scenarios.runner import run
from raydr.statistics.filling import FillRows, fit_filling
from raydr.statistics.scaling import Scaling, fit_scaling, scale_rows

PARTITIONS: dict[str, Callable[[FloatArray], list[FloatArray]]] = {
    "one client": lambda rows: [rows],
    "random cuts": lambda rows: cut(rows, 7, 2),
    "pointwise": lambda rows: list(rows[:, None]),
    "empty clients": lambda rows: [rows[:0], rows[:9], rows[:0], rows[9:], rows[:0]],
}
POOLED: dict[Filling, Callable[..., Any]] = {"mean": np.nanmean, "median": np.nanmedian}
NORTH = slice(0, 20)


@pytest.fixture(scope="module")
def holed() -> Float64Array:
    """Return rows far from and near zero, tied and constant, in even and odd number, a fifth missing."""
    random = np.random.default_rng(0)
    rows = np.column_stack(
        [
            1e8 + random.normal(size=81),
            1e-3 * random.normal(size=81),
            random.integers(-1, 2, 81),
            np.full(81, 7.5),
            np.ldexp(random.normal(size=81), 300),
            -random.exponential(size=81),
        ]
    )
    rows[random.random(rows.shape) < 0.2] = np.nan
    rows[1:, 5] = np.nan  # only one row has it
    rows[0] = [1e8, 0.0, 0.0, 7.5, 1.0, -3.25]
    return rows


def fitted(parts: list[FloatArray], by: Filling) -> tuple[Float64Array, FloatArray]:
    """Return the filling values and the rows of the clients afterwards."""
    federation = federate(parts)
    values = fit_filling(federation, by)
    request = HandOver(parts[0].shape[1], parts[0].dtype.name)
    return values, np.concatenate([reply.rows for reply in federation.ask(request)])


def test_mean_is_exact_far_from_zero() -> None:
    """Sums of values of 1e15 are rounded; a second pass sums deviations from the first mean."""
    random = np.random.default_rng(3)
    rows = 1e15 + random.integers(0, 50, (1000, 8)).astype(np.float64)
    exact = [float(sum(map(Fraction, column.tolist())) / len(rows)) for column in rows.T]
    np.testing.assert_array_equal(fitted(cut(rows, 7, 2), "mean")[0], exact)


@pytest.mark.parametrize("partition", PARTITIONS)
@pytest.mark.parametrize("by", FILLINGS)
def test_filling_equals_numpy_on_pooled_rows(holed: Float64Array, by: Filling, partition: str) -> None:
    parts = PARTITIONS[partition](holed)
    values, held = fitted(parts, by)
    expected = POOLED[by](holed, axis=0)
    if by == "median":
        assert np.array_equal(values, expected)  # to the bit
    else:
        np.testing.assert_allclose(values, expected, rtol=1e-14, atol=1e-18)
    assert np.array_equal(held, np.where(np.isnan(holed), values, holed))


@pytest.mark.parametrize("by", FILLINGS)
def test_bits_do_not_depend_on_the_partition(holed: Float64Array, by: Filling) -> None:
    packed = federate(cut(holed, 7, 2), packing=[2, 4, 1])
    assert np.array_equal(fit_filling(packed, by), fitted(cut(holed, 7, 2), by)[0])
    if by == "median":
        assert np.array_equal(fitted(list(holed[:, None]), by)[0], fitted([holed], by)[0])


@pytest.mark.parametrize("by", FILLINGS)
def test_float32_rows_stay_float32(holed: Float64Array, by: Filling) -> None:
    rows = holed[:, :4].astype(np.float32)
    values, held = fitted(cut(rows, 5, 0), by)
    assert held.dtype == np.float32
    np.testing.assert_allclose(values, POOLED[by](rows.astype(np.float64), axis=0), rtol=1e-12)


@pytest.mark.parametrize("by", FILLINGS)
def test_feature_without_values_is_refused(holed: Float64Array, by: Filling) -> None:
    rows = holed.copy()
    rows[:, 2] = np.nan
    with pytest.raises(DataError, match=r"Feature number 2 \(the first is 0\) has no value at any client"):
        fit_filling(federate(cut(rows, 3, 0)), by)


@pytest.mark.parametrize("by", FILLINGS)
def test_only_sums_are_sent(holed: Float64Array, by: Filling) -> None:
    federation = federate(cut(holed, 4, 1))
    fit_filling(federation, by)
    reported = {entry.kind: entry for entry in federation.ledger.entries.values() if entry.direction == "up"}
    expected = {"mean": {"Present", "Beyond"}, "median": {"Below"}}[by]
    assert expected <= set(reported)
    for kind in expected:
        assert reported[kind].granularity is Granularity.AGGREGATE
        assert reported[kind].public is None
    assert set(reported) - expected <= {"Enrolment", "Done"}


def test_two_sums_give_the_mean_and_65_the_median(holed: Float64Array) -> None:
    """A sum of the median is two counts of each feature: below either of the values in the middle."""
    for by, kind, sums, values in (("mean", "Present", 2, 2), ("median", "Below", 65, 2)):
        federation = federate(cut(holed, 4, 1))
        fit_filling(federation, by)  # type: ignore[arg-type]
        clients = sum(size > 0 for size in federation.sizes)
        (entry,) = (entry for entry in federation.ledger.entries.values() if entry.kind == kind)
        assert entry.count == sums * clients
        assert entry.bytes // entry.count - values * 6 * 8 in range(40), "the counts, with names and shapes"


def test_first_empty_feature_is_named_and_no_median_is_minus_zero(holed: Float64Array) -> None:
    rows = holed.copy()
    rows[:, [1, 4]] = np.nan
    for by in FILLINGS:
        with pytest.raises(DataError, match=r"Feature number 1 \(the first is 0\) has no value"):
            fit_filling(federate(cut(rows, 3, 0)), by)
    values, _ = fitted([np.array([[-0.0, -0.0], [-0.0, 0.0]])], "median")
    assert not np.signbit(values).any()
    assert FillRows.sets_state, "a restarted client must receive it again"


@pytest.mark.parametrize("scale", ["none", "standard", "minmax"])
def test_rows_are_filled_before_scaling(holed: Float64Array, scale: Any) -> None:
    parts = cut(holed[:, :4], 4, 1)
    federation = federate(parts)
    values = fit_filling(federation, "median")
    scaling = fit_scaling(federation, scale)
    held = np.concatenate([reply.rows for reply in federation.ask(HandOver(4, "float64"))])
    whole = Scaling(scaling.shift, scaling.factor, values)
    assert np.array_equal(held, scale_rows(holed[:, :4], whole))
    assert np.isfinite(held).all()
    back = Scaling.of(whole.arrays)
    assert np.array_equal(scale_rows(holed[:, :4], back), held)


def matrix(table: Path) -> Float64Array:
    return np.genfromtxt(table, delimiter=",", skip_header=1, usecols=(1, 2, 3, 4))


@pytest.mark.parametrize("by", FILLINGS)
def test_run_reports_filled_values(tmp_path: Path, by: Filling) -> None:
    table = patients(tmp_path / "patients.csv")
    folder = tiny_run(tmp_path / "run", **settings(table, by))
    rows, found = matrix(table), read_run(folder).data
    assert (found.filling, found.dropped, found.mapped) == (by, 0, 60)
    for site, name in enumerate(("north", "east", "west")):
        lacking = np.isnan(rows[20 * site :][:20]).sum(axis=0)
        expected = dict(zip(("age", "bmi", "insulin", "pulse"), lacking.tolist(), strict=True))
        assert found.filled[name] == {column: count for column, count in expected.items() if count}
    assert found.filled["north"]["insulin"] == 20
    total = int(np.isnan(rows).sum())
    (fact,) = (fact.text for fact in mapped.facts(found) if fact.name == "Missing values filled in")
    assert fact.startswith(f"{total:,} by the {by} of all clients: insulin ")
    assert "north 20" in fact
    assert f"; {total} missing values filled in by the {by}." in mapped.line(found)
    np.testing.assert_allclose(read_model(folder).arrays["fill"], POOLED[by](rows, axis=0), rtol=1e-14)


def test_filled_rows_are_mapped_like_complete_rows(tmp_path: Path) -> None:
    """The bits equal those of a table filled with the pooled median beforehand."""
    table = patients(tmp_path / "patients.csv")
    rows = matrix(table)
    whole = np.where(np.isnan(rows), np.nanmedian(rows, axis=0), rows)
    lines = table.read_text().splitlines()
    for number, row in enumerate(whole.tolist()):
        hospital, *_, diagnosis = lines[number + 1].split(",")
        lines[number + 1] = ",".join([hospital, *map(repr, row), diagnosis])
    (tmp_path / "whole.csv").write_text("\n".join(lines) + "\n")
    one = tiny_run(tmp_path / "one", **settings(table))
    other = tiny_run(tmp_path / "other", **settings(tmp_path / "whole.csv", "error"))
    assert pq.read_table(one / "embedding.parquet") == pq.read_table(other / "embedding.parquet")
    assert json.loads((one / "metrics.json").read_text()) == json.loads((other / "metrics.json").read_text())


def test_new_rows_are_filled_by_the_values_of_the_run(tmp_path: Path) -> None:
    table = patients(tmp_path / "patients.csv")
    folder = tiny_run(tmp_path / "run", **settings(table), metrics="default")
    fill = read_model(folder).arrays["fill"]
    (tmp_path / "new.csv").write_text("pulse,insulin,bmi,age\n,50,,44\n51,,,\n")
    spelt = [repr(float(value)) for value in fill]
    age, bmi, insulin, pulse = spelt
    (tmp_path / "spelt.csv").write_text(
        f"pulse,insulin,bmi,age\n{pulse},50,{bmi},44\n51,{insulin},{bmi},{age}\n"
    )
    places = []
    for name in ("new", "spelt"):
        raydr.transform(folder, tmp_path / f"{name}.csv", out=tmp_path / f"{name}-placed.csv")
        places.append((tmp_path / f"{name}-placed.csv").read_text())
    assert places[0] == places[1]


@pytest.mark.parametrize("spelt", ["Insulin", "in sulin", "INSULIN_"])
def test_misspelt_column_is_refused_not_filled(
    tmp_path: Path, spelt: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A column name that differs only in case or signs is refused; an absent column is filled with a notice."""
    folder = tiny_run(tmp_path / "run", **settings(patients(tmp_path / "patients.csv")))
    new, out = tmp_path / "new.csv", tmp_path / "placed.csv"
    for header in (f"age,bmi,{spelt},pulse", f"{spelt},pulse"):
        new.write_text(f"{header}\n" + "50,28,44,61\n"[-3 * len(header.split(",")) :])
        with pytest.raises(
            DataError, match=r"does not have 1 of the 4 columns of .*: 'insulin' \(did you mean "
        ):
            raydr.transform(folder, new, out=out)
        assert not out.exists()
    new.write_text("age,bmi,pulse\n50,28,61\n")
    raydr.transform(folder, new, out=out)
    assert "The absent columns are filled in like missing values: 'insulin'" in caplog.text


def test_text_columns_do_not_fill_absent_columns(tmp_path: Path) -> None:
    """Sites agree on columns where text is mapped, and one that a site lacks is refused unless values are filled in."""
    for site, header in (("north", "kind,x,y"), ("south", "kind,x")):
        rows = ["uv"[row % 2] + f",{row % 7},{row % 5}"[: 2 * header.count(",")] for row in range(20)]
        (tmp_path / f"{site}.csv").write_text("\n".join([header, *rows]) + "\n")
    sites = [{"path": str(tmp_path / f"{site}.csv")} for site in ("north", "south")]
    data = {"categories": "one-hot", "missing": "drop"}
    with pytest.raises(DataError, match=r"south\.csv has no column 'y'"):
        tiny_run(tmp_path / "run", data=data, clients={"sites": sites}, method=SENSE)


@pytest.mark.usefixtures("edits_accepted")
def test_model_without_filling_values_is_refused(tmp_path: Path) -> None:
    table = patients(tmp_path / "patients.csv")
    folder = tiny_run(tmp_path / "run", **settings(table))
    file = folder / "model" / "arrays.npz"
    arrays = dict(np.load(file))
    arrays.pop("fill")
    np.savez(file, **arrays)
    card = json.loads((folder / "model" / "model.json").read_text())
    card.pop("sha256")
    from raydr.data.provenance import sha256_of_file

    card["files"]["arrays.npz"] = sha256_of_file(file)
    (folder / "model" / "model.json").write_text(json.dumps({"sha256": digest_of(card), **card}))
    with pytest.raises(OutputError, match="lacks the values that fill gaps"):
        raydr.transform(folder, table, out=tmp_path / "out.csv")


def test_held_out_rows_may_lack_values(tmp_path: Path) -> None:
    table = patients(tmp_path / "patients.csv")
    folder = tiny_run(tmp_path / "run", **settings(table, holdout=0.25), metrics="default")
    held = pq.read_table(folder / "held_out.parquet")
    assert len(held) == 15
    assert np.isfinite(held["x"].to_numpy()).all()
    assert sum(sum(columns.values()) for columns in read_run(folder).data.filled.values()) < int(
        np.isnan(matrix(table)).sum()
    )


def test_resumed_run_fills_the_same_values(tmp_path: Path) -> None:
    content = settings(patients(tmp_path / "patients.csv")) | {
        "method": {"kind": "fed-tsne", "landmarks": 5, "rounds": 4, "early_iterations": 5, "iterations": 5},
        "runtime": {"federation": "inline", "checkpoint_every": 2},
    }

    def listen(event: Event) -> None:
        if isinstance(event, RoundEnded) and event.round == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(tiny_scenario(**content), out=tmp_path / "out", listener=listen)
    (kept,) = tmp_path.glob("out.incomplete-*")
    resumed = raydr.resume(kept).folder
    straight = run(tiny_scenario(**content), out=tmp_path / "whole")
    for name in ("embedding.parquet", "data.json", "model/arrays.npz"):
        assert (resumed / name).read_bytes() == (straight / name).read_bytes()


def test_secure_aggregation_hides_filling_sums(tmp_path: Path) -> None:
    table = patients(tmp_path / "patients.csv")
    fills = []
    for secure in (False, True):
        folder = tiny_run(tmp_path / str(secure), **settings(table), privacy={"secure_aggregation": secure})
        (entry,) = (entry for entry in read_run(folder).ledger if entry.kind == "Below")
        assert entry.secure == secure
        fills.append(read_model(folder).arrays["fill"])
    assert np.array_equal(*fills)


@pytest.mark.parametrize("listed", [False, True])
def test_column_absent_at_one_site_is_missing_there(tmp_path: Path, listed: bool) -> None:
    table = patients(tmp_path / "patients.csv")
    pooled = settings(table, features=["age", "bmi", "insulin", "pulse"])
    one = tiny_run(tmp_path / "one", **pooled)
    sited = {
        **pooled,
        "data": {"label": "diagnosis", "missing": "median", "scale": "standard"},
        "clients": {"sites": write_sites(tmp_path, table)},
    }
    if listed:
        sited["data"]["features"] = ["age", "bmi", "insulin", "pulse"]
    other = tiny_run(tmp_path / "other", **sited)
    one_map, other_map = (
        pq.read_table(run / "embedding.parquet").select(["client", "x", "y"]).to_pylist()
        for run in (one, other)
    )
    assert sorted(one_map, key=lambda row: row["client"]) == other_map  # a stable sort: site by site
    assert read_run(one).data.filled == read_run(other).data.filled
    assert read_run(other).data.filled["north"]["insulin"] == 20


def test_without_filling_sites_must_have_the_same_columns(tmp_path: Path) -> None:
    sites = write_sites(tmp_path, patients(tmp_path / "patients.csv"))
    with pytest.raises(DataError, match="have different features"):
        tiny_run(
            tmp_path / "run",
            data={"label": "diagnosis", "missing": "drop"},
            clients={"sites": sites},
            method=SENSE,
        )


def test_column_without_values_is_named(tmp_path: Path) -> None:
    (tmp_path / "empty.csv").write_text("a,b,c\n1,,2\n3,,\n,,4\n")
    with pytest.raises(DataError, match="no value at all in 'b'"):
        load(path=tmp_path / "empty.csv", missing="mean")


def test_a_missing_identity_is_not_filled_in(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("kind,site,number,a\nx,n,1,2\ny,m,,3\nx,m,3,\n")
    with pytest.raises(DataError, match=r"data\.missing: mean fills in features only"):
        load(path=tmp_path / "x.csv", label="kind", client="site", id_column="number", missing="mean")


def test_rows_without_a_label_are_their_own_class(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("kind,a,b\nx,2,0\n,2.5,1\ny,3,2\n,,3\n")
    table = load(path=tmp_path / "x.csv", label="kind", missing="median")
    assert table.labels is not None
    assert [table.label_names[code] for code in table.labels] == ["x", NO_LABEL, "y", NO_LABEL]
    assert len(load(path=tmp_path / "x.csv", label="kind", missing="drop").rows) == 2
    with pytest.raises(DataError, match="3 missing values in the columns 'a', 'kind'"):
        load(path=tmp_path / "x.csv", label="kind")


def test_site_without_labels_is_mapped_with_the_others(tmp_path: Path) -> None:
    for site, kinds in (("north", "xy" * 6), ("south", " " * 12)):
        lines = [f"{kind.strip()},{i},{i * i % 7}" for i, kind in enumerate(kinds)]
        (tmp_path / f"{site}.csv").write_text("\n".join(["kind,a,b", *lines]) + "\n")
    taken = own_data(tmp_path, label="kind")
    message = {fact.name: fact.text for fact in taken.facts}
    assert message["Label"] == f"kind: x 6, y 6, {NO_LABEL} 12"
    assert taken.scenario.data.missing == "median"


def test_filling_that_reveals_keyed_rows_is_refused() -> None:
    with pytest.raises(
        ScenarioError, match=r"the median of features that the key hides: set\W+data.missing to drop"
    ):
        tiny_scenario(data__missing="median", privacy__isometry_key=True, method={"kind": "fedne"})


def test_strict_run_refuses_unprotected_sums(tmp_path: Path) -> None:
    noise = {"on": "gradient", "epsilon": 5.0}
    table = patients(tmp_path / "patients.csv")
    content = settings(table) | {
        "method": {"kind": "fed-tsne", "landmarks": 5, "rounds": 2, "gamma": 1.0, "bounds": [-3, 3], "iterations": 5,
                   "early_iterations": 5},
        "privacy": {"noise": noise, "strict": "sums"},
    }  # fmt: skip
    content["data"] |= {"scale": "none", "features": ["age", "bmi", "insulin", "pulse"]}
    with pytest.raises(ScenarioError, match=r"data\.missing drop"):
        tiny_run(tmp_path / "run", **content)


def test_plan_counts_filling_messages(tmp_path: Path) -> None:
    table = patients(tmp_path / "patients.csv")
    from raydr.actors.capacity import capacity_at

    planned = plan_of_scenario(tiny_scenario(**settings(table)), capacity=capacity_at("local"), data_dir=None)
    ran = {
        (entry.kind, entry.direction): (entry.count, entry.bytes)
        for entry in read_run(tiny_run(tmp_path / "run", **settings(table))).ledger
        if entry.kind in ("Below", "BelowRequest", "FillRows")
    }
    assert len(ran) == 3
    reported = {(entry.kind, entry.direction): (entry.count, entry.bytes) for entry in planned.messages}
    assert {key: reported[key] for key in ran} == ran


def test_audit_repeats_a_run_with_missing_values(tmp_path: Path) -> None:
    folder = tiny_run(tmp_path / "run", **settings(patients(tmp_path / "patients.csv")))
    assert status(["audit", str(folder), "--quiet", "--attack", "trilateration"]) == 0


@pytest.mark.parametrize("by", FILLINGS)
def test_heart_disease_has_1759_values_filled_in(tmp_path: Path, by: Filling, heart_disease: Path) -> None:
    folder = tiny_run(
        tmp_path / "run",
        data={"path": str(heart_disease), "label": "disease", "missing": by, "scale": "standard"},
        clients={"partition": {"kind": "by-column", "column": "hospital"}},
        method={"kind": "fed-umap", "rounds": 3, "landmarks": 20, "epochs": 5},
    )
    found = read_run(folder).data
    assert sum(sum(columns.values()) for columns in found.filled.values()) == 1759
    assert found.mapped == 920
    assert found.filled["hungarian"]["major_vessels"] == 291


@pytest.fixture
def heart_disease(data_dir: Path) -> Path:
    file = data_dir / "heart_disease.csv"
    if not file.is_file():
        pytest.skip("needs heart_disease.csv in the folder RAYDR_DATA")
    return file
