"""Every release that a mechanism can cover: its measured noise and sensitivity, compared with the claim.

A release that declares a sensitivity, or a mechanism that is registered, fails here until it is measured.
"""

from __future__ import annotations

import math
import pkgutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from itertools import cycle, product
from typing import Any, Literal

import numpy as np
import pytest
from adversarial_tables import SIZES, tables
from fedne_tables import asked_to_train
from inline_federations import federate

import raydr
from raydr.arrays import Float64Array, FloatArray
from raydr.data.survey.raw_cells import RawColumn
from raydr.errors import DataError, RunError
from raydr.federation import Client, Federation, Request
from raydr.methods.fedne.clients import TrainRequest
from raydr.methods.fedne.dp_costs import MeanRequest
from raydr.methods.fedne.encoder import Architecture, initial_weights
from raydr.methods.fedne.pairs import PairRequest, summed_gradient
from raydr.methods.fedne.surrogates import DensityRequest
from raydr.methods.landmarks.features import fourier_features
from raydr.methods.landmarks.learning import StepRequest
from raydr.methods.landmarks.mean_embedding import MeanEmbeddingRequest
from raydr.methods.private_map.density import Grid, PlaceCountsRequest
from raydr.methods.private_map.messages import (
    CellSumsRequest,
    FirstMomentsRequest,
    Frame,
    ScatterRequest,
    View,
)
from raydr.methods.private_map.novelty import ScoreCountsRequest, edges_of
from raydr.methods.private_map.placing import Landmarks
from raydr.privacy import Mechanism
from raydr.privacy.gaussian import GaussianNoise
from raydr.privacy.mechanism import MECHANISMS
from raydr.privacy.secrets import Secret
from raydr.statistics.histograms import HistogramsRequest, RangeHistogramsRequest
from raydr.statistics.second_moments import SecondMomentsRequest

FEATURES = 5
ROWS = 300
"""Rows of all clients together, for requests with a total count."""
SHAPES = [*product(SIZES[:3], (1, FEATURES, 66)), *zip(SIZES[3:], cycle((1, FEATURES, 66, 17)), strict=False)]
"""Shapes of tables."""
NOWHERE = 1e300
"""A record so far from all landmarks that it adds nothing."""


def gaussian(on: Any, **more: Any) -> Mechanism:
    return GaussianNoise(on=on, **more)


INSTANCES: dict[str, Callable[..., Mechanism]] = {"gaussian-noise": gaussian}
"""Constructors of all registered mechanisms, by target, ``multiplier``, ``per``, ``unit`` and ``clip``."""


@dataclass(frozen=True)
class Release:
    """A request under a mechanism, and how to remove a record from the reply.

    Attributes
    ----------
    request : callable
        The request under a mechanism, for this number of features.
    on : str
        What the mechanism covers.
    clip : float or None
        Of the mechanism.
    unit : {"record", "client"}
        Whose presence is hidden.
    absent : float or None
        Value of all features at which a record adds nothing; None where its row is left out instead.
    """

    request: Callable[[Mechanism | None, int], Request[Any]]
    on: str
    clip: float | None = None
    unit: Literal["record", "client"] = "record"
    absent: float | None = None

    def mechanism(self, kind: str, multiplier: float, per: str = "client") -> Mechanism:
        more = {} if self.unit == "record" else {"unit": self.unit}
        return INSTANCES[kind](self.on, multiplier=multiplier, per=per, clip=self.clip, **more)

    def asked(self, features: int = FEATURES) -> Request[Any]:
        return self.request(self.mechanism(next(iter(INSTANCES)), 1.0), features)

    def of(self, request: Request[Any], rows: FloatArray) -> Float64Array:
        """Return all values of a reply that a mechanism covers."""
        reply = type(request).client_part(Client(index=0, rows=rows, seed=0), request)
        return np.concatenate([np.ravel(getattr(reply, name)) for name in type(reply).covers])

    def without(self, request: Request[Any], rows: FloatArray, gone: int) -> Float64Array:
        """Return the same values without one record's contribution, with the same row count."""
        if self.unit == "client":
            return np.zeros_like(self.of(request, rows))
        if self.absent is not None:
            rows = rows.astype(np.float64)
            rows[gone] = self.absent
            return self.of(request, rows)
        mean = request.sensitivity(2) < request.sensitivity(1)
        return self.of(request, np.delete(rows, gone, axis=0)) * ((len(rows) - 1) / len(rows) if mean else 1)


def drawn(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def weights_of(features: int, hidden: tuple[int, ...]) -> Any:
    architecture = Architecture(features, hidden)
    return initial_weights(architecture, drawn()) + drawn(1).normal(size=architecture.parameters).astype("f4")


def pair_request(noise: Mechanism | None, features: int) -> PairRequest:
    return PairRequest(
        weights=weights_of(features, (6, 5)),
        hidden=(6, 5),
        directions=drawn(2).normal(size=(features, 2)),
        offsets=np.array([0.1, -0.2]),
        extent=1.0,
        negatives=5,
        field=drawn(3).normal(size=(9, 9)).astype(np.float32),
        reach=4.0,
        clip=0.5,
        mechanism=noise,
    )


def embedding_request(noise: Mechanism | None, features: int) -> MeanEmbeddingRequest:
    waves = fourier_features(3, 64, 0.5, np.full(features, 0.25))
    return MeanEmbeddingRequest(
        seed=3,
        count=64,
        gamma=0.5,
        centre=waves.centre,
        axes=None,
        witnesses=waves.frequencies[-1, -4:],
        mechanism=noise,
    )


def step_request(
    noise: Mechanism | None, features: int, steps: int = 1, share: str = "gradient"
) -> StepRequest:
    landmarks = 0.7 * drawn(4).normal(size=(6, features))
    return StepRequest(
        landmarks=landmarks,
        gamma=0.5,
        step=1.0,
        local_steps=steps,
        share=share,
        mechanism=noise,
        objective=False,
    )


def train_request(noise: Mechanism | None, features: int) -> TrainRequest:
    return asked_to_train(
        initial_weights(Architecture(features, (16, 16)), drawn()), learning_rate=0.01, mechanism=noise
    )


def view(features: int, wide: bool = False) -> View:
    if not wide:
        return View(0.5, 3.0, None, None, features)
    return View(0.5, 3.0, drawn(5).integers(3, size=features), drawn(6).choice([-1.0, 1.0], features), 3)


def frame(features: int, wide: bool = False) -> Frame:
    seen = view(features, wide)
    axes = np.linalg.qr(drawn(7).normal(size=(max(2, seen.sums), 2)))[0][: seen.sums]
    return Frame(seen, drawn(8).normal(size=seen.sums), axes)


def cells_request(noise: Mechanism | None, features: int, wide: bool = False) -> CellSumsRequest:
    # Centres are on a grid; rows on boundaries are midway between two.
    centres = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [-2.0, 1.0]])
    return CellSumsRequest(frame(features, wide), centres, 1.5, ROWS, noise)


def counts_request(noise: Mechanism | None, features: int) -> PlaceCountsRequest:
    landmarks = Landmarks(drawn(9).normal(size=(6, 2)), np.full(6, 50.0), drawn(10).normal(size=(6, 2)))
    grid = Grid.over(landmarks.places, ROWS, 3.0)
    return PlaceCountsRequest(frame(features), landmarks, grid, 5, ROWS, noise)


def histograms_request(
    kind: type[HistogramsRequest] | type[RangeHistogramsRequest], noise: Mechanism | None, features: int
) -> HistogramsRequest | RangeHistogramsRequest:
    columns = tuple(RawColumn(str(place), place) for place in range(features))
    return kind(columns, (np.array([-1.0, 0.0, 0.5, 1e3]),) * features, ROWS, noise)


RELEASES: dict[str, Release] = {
    "mean embedding": Release(embedding_request, "embedding"),
    "step": Release(step_request, "gradient", absent=NOWHERE),
    "several steps": Release(lambda noise, d: step_request(noise, d, 3), "gradient", absent=NOWHERE),
    "step of landmarks": Release(
        lambda noise, d: step_request(noise, d, 2, "landmarks"), "variable", absent=NOWHERE
    ),
    "pair gradient": Release(pair_request, "update", clip=0.5),
    "density": Release(
        lambda noise, d: DensityRequest(
            weights=weights_of(d, (6,)), hidden=(6,), reach=2.0, nodes=7, votes=False, mechanism=noise
        ),
        "update",
        clip=1.0,
    ),
    "mean and length": Release(
        lambda noise, d: MeanRequest(np.full(d, 0.5), 2.0, noise), "update", clip=1.0, absent=0.5
    ),
    "change": Release(train_request, "update", clip=0.05, unit="client"),
    "second moments": Release(
        lambda noise, d: SecondMomentsRequest(np.full(d, 0.5), 2.0, noise), "moments", clip=2.0, absent=0.5
    ),
    "first moments": Release(lambda noise, d: FirstMomentsRequest(view(d), ROWS, noise), "moments", clip=3.0),
    "first moments of wide rows": Release(
        lambda noise, d: FirstMomentsRequest(view(d, True), ROWS, noise), "moments", clip=3.0
    ),
    "scatter": Release(
        lambda noise, d: ScatterRequest(view(d), drawn(8).normal(size=d), 2.0, ROWS, noise),
        "moments",
        clip=3.0,
    ),
    "cell sums": Release(cells_request, "moments", clip=3.0),
    "cell sums of wide rows": Release(lambda noise, d: cells_request(noise, d, True), "moments", clip=3.0),
    "counts by distance": Release(
        lambda noise, d: ScoreCountsRequest(
            frame(d), drawn(9).normal(size=(6, 2)), edges_of(1.0), ROWS, noise
        ),
        "moments",
        clip=3.0,
    ),
    "counts of places": Release(counts_request, "moments", clip=3.0),
    "histograms": Release(partial(histograms_request, HistogramsRequest), "moments", clip=3.0),
    "histograms of ranges": Release(partial(histograms_request, RangeHistogramsRequest), "moments", clip=3.0),
}


def declaring() -> set[type[Request[Any]]]:
    """Return every request type of raydr that declares a sensitivity."""
    for room in ("methods", "statistics"):
        package = import_module(f"raydr.{room}")
        for module in pkgutil.walk_packages(package.__path__, f"raydr.{room}."):
            import_module(module.name)

    def below(kind: type[Any]) -> Iterator[type[Any]]:
        for child in kind.__subclasses__():
            yield child
            yield from below(child)

    return {
        kind
        for kind in below(Request)
        if kind.__module__.startswith(f"{raydr.__name__}.") and kind.sensitivity is not Request.sensitivity
    }


def test_every_release_that_declares_a_sensitivity_is_measured() -> None:
    assert {type(release.asked()) for release in RELEASES.values()} == declaring()


def test_every_mechanism_is_measured() -> None:
    assert set(INSTANCES) == set(MECHANISMS)


FEWER_SHAPES = ("pair gradient", "several steps")
"""Releases that take seconds for all shapes."""


@pytest.mark.parametrize("name", RELEASES)
def test_declared_sensitivity_bounds_every_record(name: str) -> None:
    """Every table is compared with one without a record, and one with a replaced record."""
    release, farthest = RELEASES[name], 0.0
    quick = release.unit == "record"
    shapes = SHAPES if name not in FEWER_SHAPES else SHAPES[::2]
    for rows, features in shapes if quick else ((3, FEATURES), (33, FEATURES)):
        request = release.asked(features)
        declared = request.sensitivity(rows)
        others = dict(tables(rows, features, seed=1))
        for kind, table in tables(rows, features):
            try:
                whole = release.of(request, table)
            except (RunError, DataError, RuntimeWarning):  # training diverged, so nothing is sent
                assert not quick
                continue
            for gone in sorted({0, rows // 2, rows - 1}):
                moved = np.linalg.norm(whole - release.without(request, table, gone)) / declared
                assert moved <= 1.0, (kind, rows, features, gone)
                farthest = max(farthest, moved)
            if quick:
                other = table.astype(np.float64)
                other[0] = others["all magnitudes" if rows % 2 else "normal"][0]
                moved = np.linalg.norm(whole - release.of(request, other))
                assert moved <= request.replace_sensitivity(rows), (kind, rows, features)
    assert farthest > 0.25


@pytest.mark.parametrize("rows", [2, 3, 16, 65])
def test_pair_sensitivity_holds_without_a_field(rows: int) -> None:
    """Each row is repelled by one other row, drawn by index; the other pairs stay."""
    request = pair_request(None, FEATURES)
    request = type(request)(**{**vars(request), "field": np.zeros((0, 0), np.float32)})
    declared = request.sensitivity(rows) * rows
    for seed, (kind, table) in product(range(3), tables(rows, FEATURES)):
        repelled = drawn(seed).permutation(rows)
        whole = summed_gradient(table, request, repelled)
        for gone in sorted({0, 1, rows - 1}):
            moved = np.where(repelled == gone, -1, repelled - (repelled > gone))
            rest = summed_gradient(np.delete(table, gone, axis=0), request, np.delete(moved, gone))
            assert np.linalg.norm(whole - rest) <= declared, (kind, gone)


@pytest.mark.parametrize("kind", MECHANISMS)
def test_records_under_noise_on_data_respect_the_clip_norm(kind: str) -> None:
    noise = INSTANCES[kind]("data", multiplier=1.0, clip=0.7)
    for rows, features in SHAPES:
        for _, table in tables(rows, features):
            for record in noise.limited(table):
                assert math.fsum(float(value) ** 2 for value in record) <= noise.cut**2


REPEATS = 24
QUIET = 1e-9


def released(federation: Federation, release: Release, request: Request[Any], per: str) -> list[Float64Array]:
    """Return the releases of two rounds: of each client, or of the sum."""
    reported: list[Float64Array] = []
    for _ in federation.rounds(2):
        if per == "sum":
            summed = request.sensitivity(2) == request.sensitivity(1) and release.unit == "record"
            weights: Any = "clients" if release.unit == "client" else "rows"
            replies = [federation.sum(request) if summed else federation.mean(request, weights=weights)]
        else:
            replies = federation.ask(request)
        reported += [
            np.concatenate([np.ravel(getattr(reply, name)) for name in type(reply).covers])
            for reply in replies
        ]
    return reported


SUMMED = ("mean embedding", "step", "change", "first moments")
"""Releases whose sums cover every way to weigh clients."""
LIKE_OTHERS = ("several steps", "cell sums of wide rows", "first moments of wide rows")
"""Releases with the request type of another one."""


@pytest.mark.parametrize(
    ("name", "per"),
    [
        pytest.param(name, per, marks=() if fast else pytest.mark.slow)
        for name in RELEASES
        for per, fast in (("client", name not in LIKE_OTHERS), ("sum", name in SUMMED))
    ],
)
@pytest.mark.parametrize("kind", MECHANISMS)
def test_noise_has_the_charged_strength_and_is_independent(kind: str, name: str, per: str) -> None:
    release = RELEASES[name]
    for sizes in ((7,), (4, 1, 9)):
        parts = [drawn(rows).normal(size=(rows, FEATURES)) for rows in sizes]
        silent = release.request(release.mechanism(kind, QUIET, per), FEATURES)
        request = release.request(release.mechanism(kind, 3.0, per), FEATURES)
        clean = released(federate(parts), release, silent, per)
        noise = []
        for seed in range(REPEATS):
            federation = federate(parts, root=Secret(bytes([seed]) * 32))
            noisy = released(federation, release, request, per)
            noise.append([a - b for a, b in zip(noisy, clean, strict=True)])
        weights = [1 if release.unit == "client" else rows for rows in sizes]
        if request.sensitivity(2) == request.sensitivity(1):
            weights = [1] * len(sizes)
        charges = list(federation.ledger.charges)
        assert charges
        weakest = min(charge.outsider if per == "sum" else charge.multiplier for charge in charges)
        for place in range(len(clean)):
            if per == "sum":
                total = (
                    sum(weights)
                    if request.sensitivity(2) < request.sensitivity(1) or release.unit == "client"
                    else 1
                )
                moved = (
                    max(w * request.sensitivity(rows) for w, rows in zip(weights, sizes, strict=True)) / total
                )
            else:
                moved = request.sensitivity(sizes[place % len(sizes)])
            values = np.stack([each[place] for each in noise])
            within = 5.0 / math.sqrt(2.0 * values.size)
            assert values.std() / moved == pytest.approx(weakest, rel=within + 1e-3)
            assert abs(values.mean()) < 5.0 * values.std() / math.sqrt(values.size)
        columns = np.stack([np.concatenate(each) for each in noise])[:, :400]
        correlation = np.corrcoef(columns.T) - np.eye(columns.shape[1])
        assert np.abs(correlation).max() < math.tanh(7.0 / math.sqrt(REPEATS - 3))
