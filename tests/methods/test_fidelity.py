"""Fidelity from query rows: exact with all rows, unbiased with some, and nothing in the clear."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from inline_federations import GROUP, cut, federate
from scipy.sparse import csr_array

import raydr
from raydr.arrays import Float64Array
from raydr.errors import DataError, RunError, ScenarioError
from raydr.federation import ClientHost, Context, Federation, HostedClient, InlineTransport, fingerprint
from raydr.federation.secure import SecureSums
from raydr.federation.transcript import Transcript
from raydr.front.terminal import print_result
from raydr.methods import fidelity
from raydr.methods.fidelity import (
    Fidelity,
    Nearest,
    Own,
    QueryRequest,
    QueryRows,
    RankCounts,
    estimated_fidelity,
    keep_rows,
)
from raydr.metrics import Evidence, evaluate
from raydr.privacy.sealing import Binding, unseal
from raydr.scenarios.planning.plan import plan_of_scenario
from raydr.scenarios.schema.reading import read
from raydr.sparse_rows import SparseRows
from raydr.statistics.scaling import ScaleRows

NAMES = ("npa_10", "trustworthiness", "continuity")


def table(rows: int, seed: int = 0) -> tuple[Float64Array, Float64Array]:
    """Return rows far from the origin, and a map that shows them partly."""
    random = np.random.default_rng(seed)
    values = 50.0 + random.normal(size=(rows, 6))
    return values, values[:, :2] + 0.5 * random.normal(size=(rows, 2))


def found(
    rows: Float64Array, places: Float64Array, count: int, clients: int = 4, **options: object
) -> Fidelity:
    federation = federate(cut(rows, clients, seed=3), **options)  # type: ignore[arg-type]
    keep_rows(federation)
    return estimated_fidelity(federation, places, count)


@pytest.mark.parametrize("clients", [1, 4, 30])
def test_all_rows_give_the_pooled_metrics(clients: int) -> None:
    rows, places = table(200)
    pooled = evaluate(NAMES, Evidence(rows=rows, embedding=places)).values
    exact = found(rows, places, 1000, clients)
    assert exact.rows == 200
    assert exact.values == pytest.approx(pooled, abs=1e-12)
    assert exact.standard_errors == pytest.approx(dict.fromkeys(NAMES, 0.0), abs=1e-12)


def test_rows_at_equal_distances_are_ranked_as_by_the_pooled_metrics() -> None:
    """Integers have many ties, and repeated rows lie at one place."""
    random = np.random.default_rng(0)
    rows = random.integers(4, size=(150, 3)).astype(np.float64)
    places = rows[:, :2] + 0.1 * rows[:, 2:]
    pooled = evaluate(NAMES, Evidence(rows=rows, embedding=places)).values
    exact = found(rows, places, 150)
    assert exact.values["continuity"] == pytest.approx(pooled["continuity"], abs=0.01)
    assert exact.values["trustworthiness"] == pytest.approx(pooled["trustworthiness"], abs=0.01)
    assert exact.values["npa_10"] >= pooled["npa_10"] - 1e-12


def test_estimates_are_unbiased_and_errors_are_those_of_the_draw() -> None:
    rows, places = table(400)
    pooled = evaluate(NAMES, Evidence(rows=rows, embedding=places)).values
    drawn = [found(rows, places, 40, seed=seed) for seed in range(60)]
    for name in NAMES:
        values = np.array([each.values[name] for each in drawn])
        errors = np.array([each.standard_errors[name] for each in drawn])
        assert abs(values.mean() - pooled[name]) < 3.5 * values.std() / np.sqrt(len(drawn))
        assert 0.8 < np.sqrt((errors**2).mean()) / values.std() < 1.25


def test_result_does_not_depend_on_hosts_blocks_or_secure_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, places = table(120)
    first = found(rows, places, 40)
    assert found(rows, places, 40, packing=[1, 1, 1, 1]) == first
    assert found(rows, places, 40, secure=SecureSums(0.25, 0.0)) == first
    monkeypatch.setattr(fidelity, "BLOCK_ROWS", 7)
    assert found(rows, places, 40) == first


def test_sparse_rows_and_rows_without_their_label_columns() -> None:
    random = np.random.default_rng(0)
    rows = np.where(random.random((90, 6)) < 0.5, 0.0, random.normal(size=(90, 6)))
    places = rows[:, :2]
    sparse = federate([SparseRows.of(csr_array(part)) for part in cut(rows, 4, seed=3)])  # type: ignore[misc]
    keep_rows(sparse)
    assert estimated_fidelity(sparse, places, 30).values == found(rows, places, 30).values
    steered = federate(cut(np.hstack([rows, random.normal(size=(90, 2))]), 4, seed=3))
    steered.label_columns = 2
    keep_rows(steered)
    assert estimated_fidelity(steered, places, 30) == found(rows, places, 30)


def test_rows_are_those_before_the_method() -> None:
    rows, places = table(100)
    federation = federate(cut(rows, 4, seed=3))
    keep_rows(federation)
    federation.ask(ScaleRows(np.zeros(6), np.array([100.0, 1, 1, 1, 1, 1])))
    assert estimated_fidelity(federation, places, 30) == found(rows, places, 30)


def test_server_sees_sums_alone_and_the_ledger_names_the_readers() -> None:
    rows, places = table(100)
    transcript = Transcript()
    parts = cut(rows, 4, seed=3)
    hosts = [
        ClientHost(
            hosted=[HostedClient(index, part, fingerprint(part)) for index, part in enumerate(parts)], seed=0
        )
    ]
    federation = Federation(InlineTransport(hosts), 4, Context(seed=0), transcript=transcript)
    keep_rows(federation)
    estimated_fidelity(federation, places, 30)
    assert not [seen for seen in transcript if isinstance(seen.reply, QueryRows | Nearest)]
    assert [seen for seen in transcript if isinstance(seen.reply, RankCounts)]
    entries = {entry.kind: entry for entry in federation.ledger.entries.values()}
    for kind in ("QueryRows", "Nearest"):
        assert entries[kind].exposes_records
        assert not entries[kind].reaches_server
        assert "the other clients" in entries[kind].seen_by
    assert entries["QueryRows"].bytes - (4 * 28 + 30 * 8 * (6 + 2)) in range(4 * 50), "sealed rows and places"
    assert entries["RankCounts"].granularity == "aggregate"
    assert entries["RankCounts"].reaches_server


def test_sealed_rows_are_not_readable_without_the_clients_secret() -> None:
    rows, places = table(60)
    federation = federate(cut(rows, 1, seed=0))
    keep_rows(federation)
    own = {0: Own(places, np.arange(20))}
    (reply,) = federation.ask(QueryRequest(own, 6))
    content = np.hstack([rows[:20], places[:20]]).tobytes()
    assert not any(
        content[start : start + 8] in reply.sealed.tobytes() for start in range(0, len(content), 8)
    )
    binding = Binding("", 0, 0, "query rows")
    assert unseal(reply.sealed, GROUP.key("fidelity"), binding).tobytes() == content
    with pytest.raises(RunError):
        unseal(reply.sealed, bytes(32), binding)


def test_few_rows_are_refused() -> None:
    with pytest.raises(DataError, match="more than 20 rows"):
        found(*table(20), 20)


METHOD: dict[str, Any] = {"kind": "fed-pca"}


def scenario(**changes: Any) -> dict[str, Any]:
    return {
        "name": "fidelity",
        "data": {"source": "iris"},
        "clients": {"count": 3},
        "method": METHOD,
        "metrics": list(NAMES),
        "fidelity_rows": 40,
        "runtime": {"federation": "inline"},
    } | changes


def test_run_reports_estimates_next_to_pooled_values(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = raydr.run(scenario(), out=tmp_path / "run")
    measures = json.loads((result.folder / "metrics.json").read_text())
    queried = measures["fidelity"]["query rows"]
    assert queried["rows"] == 40
    for name in NAMES:
        one = queried["metrics"][name]
        assert one["pooled"] == measures["federated"][name]
        assert abs(one["estimate"] - one["pooled"]) < 4 * one["standard_error"]
    page = (result.folder / "report.html").read_text()
    assert "from 40 rows that every site saw" in page
    assert "Shown to other sites" in page
    print_result(result.folder)
    told = " ".join(capsys.readouterr().err.split())
    assert "40 rows that every site saw" in told
    assert "Every site can read 40 rows of all sites" in told
    reasons = json.loads((result.folder / "privacy.json").read_text())["infinite"]
    assert any(reason.startswith("QueryRows") for reason in reasons)
    planned = {each.kind: each.bytes for each in plan_of_scenario(read(scenario())).messages}
    sent = json.loads((result.folder / "ledger.json").read_text())
    for entry in sent:
        if entry["kind"] in ("QueryRows", "Nearest", "RankCounts"):
            assert planned[entry["kind"]] == entry["bytes"], entry["kind"]


@pytest.mark.parametrize(("landmarks", "exact"), [(12, True), (2, False)])
def test_exact_recovered_distances_give_an_estimate_without_messages(
    tmp_path: Path, landmarks: int, exact: bool
) -> None:
    """With fewer landmarks than features, recovered distances are wrong, and so are scores by them. Iris has ties."""
    method = {
        "kind": "fed-tsne",
        "landmarks": landmarks,
        "rounds": 2,
        "early_iterations": 5,
        "iterations": 20,
    }
    result = raydr.run(scenario(method=method, metrics="default", fidelity_rows=0), out=tmp_path / "run")
    measures = json.loads((result.folder / "metrics.json").read_text())
    assert ("fidelity" in measures) is exact
    if exact:
        assert list(measures["fidelity"]) == ["recovered distances"]
        for name, one in measures["fidelity"]["recovered distances"]["metrics"].items():
            assert one["estimate"] == pytest.approx(measures["federated"][name], abs=0.02)
    assert "QueryRows" not in (result.folder / "ledger.json").read_text()


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"fidelity_rows": 19}, "fewer than 20"),
        ({"method": {"kind": "private-map", "epsilon": 8.0, "clip": 5.0}}, "protects rows by noise"),
        (
            {
                "privacy": {
                    "strict": True,
                    "noise": {"on": "data", "clip": 2.0, "epsilon": 1.0, "stage": "all"},
                },
                "method": {"kind": "sense"},
            },
            "protects rows by noise",
        ),
        ({"privacy": {"strict": True}}, "privacy.strict"),
        ({"method": {"kind": "fed-pca", "publish": "local"}}, "clients keep theirs"),
        (
            {"method": {"kind": "sense", "geometry": "hyperbolic", "embedder": {"kind": "cosne"}}},
            "Euclidean",
        ),
    ],
)
def test_scenarios_that_rows_may_not_be_shown_in_are_refused(changes: dict[str, Any], match: str) -> None:
    with pytest.raises(ScenarioError, match=match):
        read(scenario(**changes))
