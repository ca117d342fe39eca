"""Every aggregation with every method and surrogate that supports one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from inline_federations import federate
from tiny import tiny_scenario

from raydr.arrays import FloatArray
from raydr.errors import ScenarioError
from raydr.federation import Federation
from raydr.methods import METHODS
from raydr.methods.fedne import field
from raydr.methods.fedne.surrogates import REACHES, DensityRequest

CLIENTS = 7
AGGREGATIONS: tuple[dict[str, Any], ...] = (
    {"kind": "mean"},
    {"kind": "coordinate-median"},
    {"kind": "trimmed-mean", "trim": 0.2},
    {"kind": "krum", "attackers": 2},
    {"kind": "multi-krum", "attackers": 2},
    {"kind": "norm-bound"},
)
ENCODER: dict[str, Any] = {"hidden": [8, 8], "rounds": 3, "batch": 32, "neighbors": 4}
MAP: dict[str, Any] = {"landmarks": 12, "rounds": 3}
TSNE: dict[str, Any] = {"perplexity": 5, "early_iterations": 5, "iterations": 5}
METHODS_THAT_AGGREGATE: dict[str, dict[str, Any]] = {
    "fed-tsne": {"kind": "fed-tsne", **MAP, **TSNE},
    "fed-tsne, landmarks": {"kind": "fed-tsne", **MAP, **TSNE, "share": "landmarks", "local_steps": 2},
    "fed-umap": {"kind": "fed-umap", **MAP, "epochs": 5},
    "fed-spectral": {"kind": "fed-spectral", "clusters": 2, **MAP, "embedder": {"kind": "tsne", **TSNE}},
    "sense, learnt anchors": {
        "kind": "sense", "anchors": 4, "anchor_source": "learnt", "learning": {"rounds": 3},
        "embedder": {"kind": "tsne", **TSNE},
    },
    "fedne, field": {"kind": "fedne", **ENCODER, "surrogate": "field"},
    "fedne, mlp": {"kind": "fedne", **ENCODER, "surrogate": "mlp", "surrogate_from": 0.0},
    "fedne, no surrogate": {"kind": "fedne", **ENCODER, "surrogate": "none"},
    "fedavg-ne": {"kind": "fedavg-ne", **ENCODER},
    "fedprox-ne": {"kind": "fedprox-ne", **ENCODER},
}  # fmt: skip


def parts() -> list[FloatArray]:
    """Return seven similar clients, for rules that rely on similarity."""
    random = np.random.default_rng(0)
    return [3.0 * random.integers(0, 2, (20, 1)) + random.normal(size=(20, 5)) for _ in range(CLIENTS)]


def chosen(method: dict[str, Any], aggregation: dict[str, Any]) -> dict[str, Any]:
    if "learning" in method:
        return method | {"learning": method["learning"] | {"aggregation": aggregation}}
    return method | {"aggregation": aggregation}


def is_fast(name: str, kind: str) -> bool:
    """Return whether a pair is tried in every run of the tests: one rule of each method, all rules of two."""
    return kind == "multi-krum" or name in ("fed-tsne", "fedne, field")


@pytest.mark.parametrize(
    ("name", "aggregation"),
    [
        pytest.param(
            name,
            aggregation,
            id=f"{name}-{aggregation['kind']}",
            marks=() if is_fast(name, aggregation["kind"]) else pytest.mark.slow,
        )
        for name in METHODS_THAT_AGGREGATE
        for aggregation in AGGREGATIONS
    ],
)
def test_every_aggregation_serves_every_method(
    name: str, aggregation: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    for way in ("mean", "robust_mean"):
        plain = getattr(Federation, way)

        def recorded(
            federation: Federation, request: Any, *more: Any, _plain: Any = plain, **options: Any
        ) -> Any:
            asked.append(request)
            return _plain(federation, request, *more, **options)

        monkeypatch.setattr(Federation, way, recorded)
    method = chosen(METHODS_THAT_AGGREGATE[name], aggregation)
    scenario = tiny_scenario(method=method, clients__count=CLIENTS)
    federation = federate(parts())
    outcome = METHODS[scenario.method.kind].serve(federation, scenario.method)
    assert outcome.embedding.shape == (20 * CLIENTS, 2)
    assert np.isfinite(outcome.embedding).all()
    nodes = [request.nodes for request in asked if isinstance(request, DensityRequest)]
    assert bool(nodes) == (name == "fedne, field")
    assert max(nodes, default=0) < 200, "the grid covers the map and is not the largest possible one"
    finest = {entry.granularity for entry in federation.ledger.entries.values() if entry.direction == "up"}
    assert ("per-client" in finest) or aggregation["kind"] == "mean"


def test_every_method_that_aggregates_is_covered() -> None:
    tried = {method["kind"] for method in METHODS_THAT_AGGREGATE.values()}
    fields = {name: method.settings.model_fields for name, method in METHODS.items()}
    assert tried == {name for name in METHODS if {"aggregation", "learning"} & fields[name].keys()}


@pytest.mark.parametrize(
    ("sent", "most"),
    [(0.0, 128), (-1.0, 64)],
)
def test_client_voting_for_no_grid_size_cannot_exhaust_memory(
    sent: float, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of seven clients votes for no size under the plain mean: the grid becomes coarse, not large."""
    from raydr.methods.fedne import surrogates

    part = DensityRequest.client_part
    seen: list[int] = []

    def deny(client: Any, request: Any) -> Any:
        seen.append(request.nodes)
        reply = part(client, request)
        if client.index == 3:
            reply = surrogates.Density(reply.share, np.full(REACHES.shape, sent))
        return reply

    monkeypatch.setattr(DensityRequest, "client_part", staticmethod(deny))
    monkeypatch.setattr(field, "USUAL_NODES", most)
    scenario = tiny_scenario(method=METHODS_THAT_AGGREGATE["fedne, field"], clients__count=CLIENTS)
    outcome = METHODS["fedne"].serve(federate(parts()), scenario.method)
    assert np.isfinite(outcome.embedding).all()
    assert max(seen) == most


@pytest.mark.parametrize(
    ("aggregation", "count", "message"),
    [
        ({"kind": "krum", "attackers": 2}, 6, "at least 7 clients"),
        ({"kind": "multi-krum", "attackers": 1, "keep": 6}, 6, "at least 7 clients"),
        ({"kind": "coordinate-median"}, 2, "at least 3 clients"),
    ],
)
@pytest.mark.parametrize("kind", ["fed-tsne", "fedne"])
def test_too_few_clients_for_a_rule_are_refused(
    kind: str, aggregation: dict[str, Any], count: int, message: str
) -> None:
    with pytest.raises(ScenarioError, match=message):
        tiny_scenario(method={"kind": kind, "rounds": 3, "aggregation": aggregation}, clients__count=count)


@pytest.mark.parametrize(
    ("method", "message"),
    [
        (
            {"kind": "fedne", "aggregation": {"kind": "norm-bound"}, "control_variates": True},
            "control_variates need the exact mean",
        ),
        (
            {"kind": "fed-tsne", "aggregation": {"kind": "krum", "attackers": 1}, "weights": "rows"},
            "a malicious client could claim any number of rows",
        ),
        ({"kind": "fed-tsne", "aggregation": {"kind": "norm-bound", "limit": 1, "multiple": 1}}, "not both"),
    ],
)
def test_incompatible_settings_are_refused(method: dict[str, Any], message: str) -> None:
    with pytest.raises(ScenarioError, match=message):
        tiny_scenario(method=method, clients__count=CLIENTS)
