"""dSNE: one site equals t-SNE of its rows and the reference rows; sites interact only through the latter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from inline_federations import federate
from scipy.spatial.distance import cdist
from tiny import tiny_run, tiny_scenario

from raydr.arrays import Float64Array, FloatArray
from raydr.errors import DataError, ScenarioError
from raydr.federation import Client
from raydr.federation.checkpoint import Checkpoint
from raydr.journal import CheckpointTaken, Event, Journal
from raydr.methods.dsne.clients import BeginRequest, StepRequest, begin, step
from raydr.methods.dsne.forces import LEAST_GAIN, LONGEST_STEP, MOMENTUM, affinities, forces
from raydr.methods.dsne.server import DSNE, reference_of, serve
from raydr.methods.outcome import Outcome

SHORT: dict[str, Any] = {"early_iterations": 6, "iterations": 6}


def groups(rows: int, seed: int, features: int = 5, kinds: int = 3) -> Float64Array:
    """Return rows of distant groups, on a grid so fine that an offset of 1e8 is exact."""
    random = np.random.default_rng(seed)
    centres = 12.0 * np.eye(kinds, features)
    made = centres[np.arange(rows) % kinds] + random.normal(size=(rows, features))
    return np.asarray(np.round(made * 2**12) / 2**12)


def mapped(parts: list[FloatArray], public: FloatArray | None = None, **settings: Any) -> Outcome:
    public = groups(12, 9) if public is None else public
    return serve(federate(parts, public=public), DSNE(**SHORT | settings))


# ------------------------------------------------------------------------- t-SNE of one site's points


def dense_affinities(points: FloatArray, perplexity: float) -> Float64Array:
    """Return P of t-SNE over the nearest 3 * perplexity points, by bisection of each row's precision."""
    squared, count = cdist(points, points) ** 2, len(points)
    directed = np.zeros((count, count))
    for row in range(count):
        order = [other for other in np.argsort(squared[row], kind="stable") if other != row]
        near = order[: int(3 * perplexity)]
        low, high = 0.0, 1e9
        for _ in range(200):
            precision = (low + high) / 2.0
            weights = np.exp(-precision * (squared[row, near] - squared[row, near].min()))
            shares = weights / weights.sum()
            entropy = -(shares * np.log(np.maximum(shares, 1e-300))).sum()
            low, high = (precision, high) if entropy > np.log(perplexity) else (low, precision)
        directed[row, near] = shares
    return (directed + directed.T) / (2 * count)


def divergence(joint: Float64Array, places: Float64Array) -> float:
    """Kullback-Leibler divergence of t-SNE, from all pairs."""
    near = 1.0 / (1.0 + cdist(places, places) ** 2)
    np.fill_diagonal(near, 0.0)
    there = joint > 0
    return float((joint[there] * np.log(joint[there] / (near / near.sum())[there])).sum())


def test_affinities_have_the_requested_perplexity() -> None:
    points = groups(40, 0)
    np.testing.assert_allclose(affinities(points, 6.0).toarray(), dense_affinities(points, 6.0), atol=1e-6)


@pytest.mark.parametrize("dimensions", [2, 3])
def test_forces_are_the_gradient_of_the_divergence(dimensions: int) -> None:
    joint = affinities(groups(20, 0), 4.0)
    places = np.random.default_rng(0).normal(size=(20, dimensions))
    force, value = forces(joint, places, 1.0)
    assert value == pytest.approx(divergence(joint.toarray(), places), rel=1e-12)
    for index in np.ndindex(places.shape):
        step = np.zeros_like(places)
        step[index] = 1e-5
        slope = divergence(joint.toarray(), places + step) - divergence(joint.toarray(), places - step)
        assert 4.0 * force[index] == pytest.approx(slope / 2e-5, abs=1e-7)


def test_one_site_is_tsne_of_its_rows_and_the_reference_rows() -> None:
    """Compare with an all-pairs implementation that sees both, from the same start."""
    rows, public = groups(25, 0), groups(12, 9)
    found = mapped([rows], public, perplexity=5.0)
    points = np.concatenate([public, rows])
    joint = dense_affinities(points, 5.0)
    federation = federate([rows], public=public)
    reference = reference_of(federation, DSNE())
    places = (points - reference.centre) @ reference.axes
    assert np.std(places[:12, 0]) == pytest.approx(1e-4)
    places[12:] += Client(index=0, rows=rows, seed=0).stream("first places").normal(scale=1e-6, size=(25, 2))
    change, gains = np.zeros_like(places), np.ones_like(places)
    for number in range(12):
        exaggeration = 12.0 if number < 6 else 1.0
        near = 1.0 / (1.0 + cdist(places, places) ** 2)
        np.fill_diagonal(near, 0.0)
        pulls = (exaggeration * joint - near / near.sum()) * near
        force = pulls.sum(axis=1, keepdims=True) * places - pulls @ places
        gains = np.maximum(np.where(np.sign(change) != np.sign(force), gains + 0.2, 0.8 * gains), LEAST_GAIN)
        change = MOMENTUM * change - len(points) / exaggeration * gains * force
        change /= np.maximum(1.0, np.linalg.norm(change, axis=1, keepdims=True) / LONGEST_STEP)
        places = places + change
    atol = 1e-4 * np.abs(places).max()
    np.testing.assert_allclose(found.embedding, places[12:], atol=atol)
    np.testing.assert_allclose(found.model["reference_positions"], places[:12], atol=atol)


# ------------------------------------------------------------------------- several sites


def test_messages_stay_within_their_range_wherever_references_lie() -> None:
    rows, public = groups(9, 0), groups(12, 9)
    federation = federate([rows], public=public)
    settings = DSNE(early_exaggeration=100.0)
    for spread in (1e-6, 1e-2, 1.0, 1e3):
        client = Client(index=0, rows=rows, seed=0)
        begin(client, BeginRequest(settings, reference_of(federation, settings)))
        request = StepRequest(spread * np.random.default_rng(0).normal(size=(12, 2)), 1, 100.0)
        reply = step(client, request)
        for name, declared in type(reply).ranges(request, 9).items():
            declared.check(name, getattr(reply, name))


def test_shared_kinds_of_rows_lie_together_across_sites() -> None:
    public = groups(60, 9)
    parts = [groups(30, 0), groups(30, 1)]
    places = mapped(parts, public, early_iterations=150, iterations=200).embedding
    kinds = np.tile(np.arange(30) % 3, 2)
    apart = cdist(places[:30], places[30:])  # from one site's rows to the other's
    assert (kinds[30:][apart.argmin(axis=1)] == kinds[:30]).mean() > 0.9


def test_sites_affect_each_other_only_through_reference_rows() -> None:
    """In single-shot mode the reference rows are fixed, so a site's rows do not depend on the others."""
    one, other = groups(20, 0), groups(15, 1)
    both = mapped([one, other], shots="single").embedding
    np.testing.assert_array_equal(mapped([one], shots="single").embedding, both[:20])
    joined = mapped([one, other]).embedding
    assert np.abs(mapped([one]).embedding - joined[:20]).max() > 1e-6


@pytest.mark.parametrize("shots", ["multi", "single"])
def test_packing_and_offset_change_nothing_and_sites_may_be_tiny(shots: str) -> None:
    parts = [groups(20, 0), groups(1, 1), np.zeros((0, 5)), groups(7, 2)]
    public, settings = groups(12, 9), DSNE(**SHORT, shots=shots)
    one, other = (
        serve(federate(parts, public=public, packing=packing), settings).embedding
        for packing in ([4], [1, 2, 1])
    )
    np.testing.assert_array_equal(one, other)
    far = serve(federate([part + 1e8 for part in parts], public=public + 1e8), settings).embedding
    np.testing.assert_allclose(far, one, atol=1e-3 * np.abs(one).max())


def test_clients_send_a_sum_per_iteration_and_final_positions() -> None:
    federation = federate([groups(20, 0), groups(15, 1)], public=groups(12, 9))
    serve(federation, DSNE(**SHORT))
    up = {
        entry.kind: (entry.granularity, entry.count)
        for entry in federation.ledger.entries.values()
        if entry.direction == "up"
    }
    assert up["Forces"] == ("aggregate", 24)
    assert up["SitePlaces"] == ("per-record", 2)
    assert set(up) == {"Enrolment", "Ready", "Forces", "SitePlaces"}


# ------------------------------------------------------------------------- what goes wrong


def test_resumed_run_has_the_same_bits() -> None:
    """Sites of a resumed run start again and repeat the iterations in which they took part."""
    taken: list[bytes] = []

    def listen(event: Event) -> None:
        if isinstance(event, CheckpointTaken):
            taken.append(event.content)

    def run(resume: Checkpoint | None) -> Float64Array:
        federation = federate(
            [groups(20, 0), groups(15, 1), groups(9, 2)],
            public=groups(12, 9),
            journal=Journal(listen),
            resume=resume,
            checkpoint_every=5,
            participation=0.67,
        )
        return serve(federation, DSNE(**SHORT)).embedding

    whole = run(None)
    assert len(taken) == 3
    for content in taken[:3]:
        np.testing.assert_array_equal(run(Checkpoint.from_bytes(content)), whole)


def test_restarted_site_has_the_same_bits(tmp_path: Path) -> None:
    method = {"kind": "dsne", "reference_rows": 12, **SHORT}
    crashes = [{"client": 1, "round": 2}, {"client": 2, "round": 5, "moment": "after"}]
    steady = tiny_run(tmp_path / "steady", method=method, data__rows=120)
    crashed = tiny_run(tmp_path / "crashed", method=method, data__rows=120, faults={"crashes": crashes})
    assert (steady / "embedding.parquet").read_bytes() == (crashed / "embedding.parquet").read_bytes()


@pytest.mark.parametrize("public", [None, groups(3, 9), np.ones((8, 5)), groups(12, 9, features=4)])
def test_missing_or_useless_reference_rows_are_refused(public: FloatArray | None) -> None:
    words = r"and there are [03]\.|All reference rows are equal|have 4 features and the data 5"
    with pytest.raises(DataError, match=words):
        serve(federate([groups(20, 0)], public=public), DSNE(**SHORT))


def test_sites_with_their_own_files_need_public_rows(tmp_path: Path) -> None:
    with pytest.raises(
        DataError, match=r"sets 140 reference rows apart, but only 30 of 150 rows are left over"
    ):
        tiny_run(tmp_path / "many", method={"kind": "dsne", "reference_rows": 140}, data__rows=120)
    with pytest.raises(ScenarioError, match="give either reference_rows"):
        tiny_scenario(method={"kind": "dsne", "reference_rows": 9, "reference_path": "rows.csv"})
    reason = DSNE().needs_table()
    assert reason is not None
    assert "reference_path" in reason
    assert DSNE(reference_path="rows.csv").needs_table() is None
    assert DSNE(reference_path="rows.csv").public_rows(100, None, 5, 3) == 0
