"""Bounds of P1's theorems for a finished run, compared with measured values. The rows of the run are loaded again."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from raydr.arrays import Float64Array
from raydr.errors import ScenarioError
from raydr.methods.landmarks import bounds, measured
from raydr.methods.landmarks.kernel import (
    default_step,
    gaussian_kernel,
    gradient_sensitivity,
    lipschitz_constant,
)
from raydr.methods.landmarks.settings import DistributionLearning
from raydr.privacy.accounting import gaussian_multiplier
from raydr.robust import Mean
from raydr.runfolder import RunFolder, read_run
from raydr.runfolder.model import preparation_of, read_model
from raydr.runfolder.records import SCENARIO
from raydr.scenarios.afterwards.repetition import require_same_data
from raydr.scenarios.running.backend import InlineBackend
from raydr.scenarios.running.client_data import dealt_out
from raydr.scenarios.running.site_files import from_sites
from raydr.scenarios.schema.reading import read
from raydr.scenarios.schema.scenario import Scenario
from raydr.threads import one_blas_thread

SAMPLE = 600
"""Number of rows for dense matrices: with 500 landmarks, eigenvalues of 1,100 x 1,100 take a second."""
_DRAWS = 20  # draws of columns for the mean of Theorem 2
_FAILURE = 0.01  # failure probability of Lemma 1
_EPSILON, _DELTA = 1.0, 1e-5  # for the noise of Theorem 4


@dataclass(frozen=True)
class BoundRow:
    """A bound and the measured value.

    Attributes
    ----------
    theorem : str
        Theorem of P1, and its version.
    what : str
        The bounded quantity.
    bound, measured : float or None
        Values; None if they do not apply, with the reason in ``note``. The bound can be infinite.
    note : str
        Conditions of the bound.
    """

    theorem: str
    what: str
    bound: float | None
    measured: float | None
    note: str = ""

    @property
    def factor(self) -> float | None:
        """Bound divided by measured value; below 1 the bound is broken. None if one of them is not above 0."""
        if self.bound is None or self.measured is None or min(self.bound, self.measured) <= 0:
            return None
        return self.bound / self.measured

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON; infinite and NaN values as text."""
        numbers = {"bound": self.bound, "measured": self.measured, "factor": self.factor}
        values = {
            name: value if value is None or math.isfinite(value) else str(value)
            for name, value in numbers.items()
        }
        return {"theorem": self.theorem, "what": self.what, **values, "note": self.note}


@dataclass(kw_only=True, frozen=True)
class _Learnt:
    """A run's landmarks and a random sample of its rows, by client."""

    run: RunFolder
    scenario: Scenario
    landmarks: Float64Array
    gamma: float
    parts: tuple[Float64Array, ...]
    sizes: tuple[int, ...]

    @property
    def rows(self) -> Float64Array:
        return np.concatenate(self.parts)


def bounds_of(folder: Path, data_dir: Path | None = None) -> list[BoundRow]:
    """Return all bounds of P1 for a run, with the measured values.

    Raises
    ------
    OutputError
        If the folder is not a complete run folder, or its model is damaged.
    ScenarioError
        If the run learnt no landmarks.
    DataError
        If the data have changed.
    """
    learnt = _learnt(folder, data_dir)
    with one_blas_thread():
        return [
            *_convergence(learnt),
            *_perturbation(learnt),
            *_sampling(learnt),
            *_estimate(learnt),
            *_sensitivity(learnt),
        ]


def _learnt(folder: Path, data_dir: Path | None) -> _Learnt:
    run, model = read_run(folder), read_model(folder)
    scenario = read(folder / SCENARIO)
    if not isinstance(scenario.method, DistributionLearning) or scenario.method.origin != "learnt":
        raise ScenarioError(
            f"P1's theorems need landmarks learnt from the rows, and this run of method.kind {scenario.method.kind!r}"
            " learnt none: give a run that learns landmarks, such as one of fed-tsne."
        )
    sites = scenario.clients.sites
    client_data = from_sites(scenario, InlineBackend()) if sites else dealt_out(scenario, data_dir)
    require_same_data(run, client_data, scenario.scaling)
    prepared = preparation_of(folder, model, scenario.data.metric, scenario.data.harmonizing)
    rows = prepared.applied(
        client_data.pooled(), client_data.client_of_row, client_data.kept_classes, client_data.targets
    )
    random = np.random.default_rng((scenario.seed, SAMPLE))
    drawn = np.sort(random.choice(len(rows), min(SAMPLE, len(rows)), replace=False))
    owners = client_data.client_of_row[drawn]
    return _Learnt(
        run=run,
        scenario=scenario,
        landmarks=np.asarray(model.arrays["landmarks"], np.float64),
        gamma=float(model.arrays["gamma"][0]),
        parts=tuple(
            rows[drawn[owners == client]].astype(np.float64) for client in range(len(client_data.names))
        ),
        sizes=tuple(np.bincount(client_data.client_of_row, minlength=len(client_data.names)).tolist()),
    )


def _convergence(learnt: _Learnt) -> Iterator[BoundRow]:
    """Yield Theorem 1 on the rounds of the run: F(Y^S) is the objective before the last round, which is left out."""
    scenario, method = learnt.scenario, learnt.scenario.method
    assert isinstance(method, DistributionLearning)
    count, gamma = len(learnt.landmarks), learnt.gamma
    what = "mean squared step of the landmarks"
    recorded = [
        (line.objective, line.moved)
        for line in learnt.run.rounds
        if line.objective is not None and line.moved is not None
    ]
    slope = 1.0 / (method.step or default_step(count, gamma))
    reason = ""
    if len(recorded) < 2:
        reason = "fewer than two rounds recorded their step"
    elif slope < lipschitz_constant(count, gamma):
        reason = f"the step is longer than 1 / L, with L = {lipschitz_constant(count, gamma):.3g}"
    elif scenario.privacy.noise is not None and scenario.privacy.noise.on != "data":
        reason = "the theorem does not cover noise"
    elif not isinstance(method.aggregation, Mean) or scenario.clients.participation < 1:
        reason = "the theorem covers only the mean of all clients"
    elif method.local_steps > 1 and method.share == "gradient":
        reason = (
            "only the gradient of the last of several local steps was shared, which Algorithm 1 leaves open"
        )
    if reason:
        yield BoundRow("Theorem 1", what, None, None, reason)
        return
    rounds, steps = len(recorded) - 1, method.local_steps
    drop = float(recorded[0][0] or 0.0) - float(recorded[-1][0] or 0.0)
    moved = sum(float(step or 0.0) for _, step in recorded[:-1]) / (rounds * steps**2)
    clients = len(learnt.sizes)
    same, weights = np.full(clients, slope), np.full(clients, 1.0 / clients)
    widest = bounds.zeta(count, gamma)
    seen = measured.disagreement(learnt.parts, learnt.landmarks, gamma)
    negative = "; Q > 1: its second term is negative, so the bound is vacuous" if steps > 1 else ""
    least = "; measured: at least" if steps > 1 else ""
    for zeta, how in ((widest, "zeta bounded for any data"), (seen, "zeta measured at the last landmarks")):
        bound = bounds.theorem_1(drop, rounds, steps, same, weights, zeta)
        yield BoundRow("Theorem 1", what, bound, moved, f"L = 1 / step, {how}{negative}{least}")
    if steps == 1:
        yield BoundRow("Theorem 1, ours", what, bounds.descent(drop, rounds, slope), moved, "Q = 1: no zeta")


def _perturbation(learnt: _Learnt) -> Iterator[BoundRow]:
    """Yield Lemma 1 and Theorems 3 and 4 if clients add noise to their data; the noise is drawn again."""
    noise = learnt.scenario.privacy.noise
    if noise is None or noise.on != "data":
        yield BoundRow(
            "Lemma 1", "change of the kernel by noise on the data", None, None, "no noise on the data"
        )
        return
    rows, gamma = learnt.rows, learnt.gamma
    deviation = noise.deviation * float(np.sqrt(rows.var(axis=0).mean()))
    random = np.random.default_rng((learnt.scenario.seed, SAMPLE + 1))
    noisy = rows + deviation * random.standard_normal(rows.shape)
    seen = (len(rows), rows.shape[1], gamma, deviation, measured.diameter(rows), _FAILURE)
    change = measured.kernel_perturbation(rows, noisy, gamma)
    what = "change of the kernel by noise on the data, Frobenius"
    printed = bounds.lemma_1_printed(*seen)
    yield BoundRow("Lemma 1, printed", what, printed, change, "sqrt(2) too small")
    yield BoundRow(
        "Lemma 1, corrected", what, bounds.lemma_1(*seen), change, f"fails with probability {_FAILURE:g}"
    )
    rank = bounds.numerical_rank(learnt.landmarks, gamma)
    bound = bounds.theorem_3(noisy, learnt.landmarks, gamma, rank, printed)
    error = measured.landmark_error(noisy, learnt.landmarks, gamma, rank, rows)
    yield BoundRow("Theorem 3", "error of the landmarks' kernel, spectral", bound.spectral, error.spectral)
    yield BoundRow("Theorem 3", "error of the landmarks' kernel, Frobenius", bound.frobenius, error.frobenius)
    radius = float(np.linalg.norm(rows, axis=1).max())
    yield BoundRow(
        "Theorem 4, corrected",
        f"epsilon = {_EPSILON:g}, delta = {_DELTA:g}: required noise as a multiple of the run's noise",
        bounds.theorem_4(radius, _EPSILON, _DELTA) / deviation,
        2.0 * radius * gaussian_multiplier(_EPSILON, _DELTA) / deviation,
        "measured: the exact requirement; as printed it requires no noise",
    )


def _sampling(learnt: _Learnt) -> Iterator[BoundRow]:
    """Yield Theorem 2 on the rows' own kernel, with as many columns as landmarks."""
    kernel = np.asarray(gaussian_kernel(learnt.rows, learnt.rows, learnt.gamma), np.float64)
    count = min(len(learnt.landmarks), len(kernel) // 2)
    rank = max(1, count // 2)
    random = np.random.default_rng((learnt.scenario.seed, SAMPLE + 2))
    errors = [
        measured.nystrom_error(kernel, random.choice(len(kernel), count, replace=False), rank)
        for _ in range(_DRAWS)
    ]
    note = f"{count} rows as columns, rank {rank}, mean of {_DRAWS} draws; not of learnt landmarks"
    mean = float(np.mean([error.frobenius for error in errors]))
    bound, printed = bounds.theorem_2(kernel, count, rank), bounds.theorem_2_printed(kernel, count, rank)
    yield BoundRow(
        "Theorem 2",
        "error of Nystrom, spectral",
        bound.spectral,
        float(np.mean([error.spectral for error in errors])),
        note,
    )
    yield BoundRow(
        "Theorem 2, printed", "error of Nystrom, Frobenius", printed.frobenius, mean, "lacks a factor n"
    )
    yield BoundRow("Theorem 2, corrected", "error of Nystrom, Frobenius", bound.frobenius, mean, note)


def _estimate(learnt: _Learnt) -> Iterator[BoundRow]:
    """Yield Theorem 5 for the run's landmarks."""
    rows, landmarks, gamma = learnt.rows, learnt.landmarks, learnt.gamma
    rank = bounds.numerical_rank(landmarks, gamma)
    bound = bounds.theorem_5(rows, landmarks, gamma, rank)
    error = measured.landmark_error(rows, landmarks, gamma, rank)
    own = bounds.certificate(rows, landmarks, gamma, rank)
    note = f"{len(rows)} rows, rank {rank}; an estimate of zero errs by at most {len(rows)}"
    for name, printed, seen in (
        ("spectral", bound.spectral, error.spectral),
        ("Frobenius", bound.frobenius, error.frobenius),
    ):
        what = f"error of the landmarks' kernel, {name}"
        yield BoundRow("Theorem 5", what, printed, seen, note)
        yield BoundRow("Theorem 5, ours", what, own, seen, "the remainder of the trace")


def _sensitivity(learnt: _Learnt) -> Iterator[BoundRow]:
    """Yield the sensitivity of Theorem 6 for the client with the fewest rows."""
    rows, count, gamma = learnt.rows, len(learnt.landmarks), learnt.gamma
    smallest = min(size for size in learnt.sizes if size)
    extents = measured.extents(rows, learnt.landmarks)
    seen = measured.gradient_change(rows, learnt.landmarks, gamma, smallest)
    what = f"change of a gradient of {smallest} rows by one record"
    for theorem, bound, note in (
        (
            "Theorem 6, main text",
            bounds.theorem_6_printed(smallest, count, gamma, extents),
            f"lacks gamma, which is {gamma:.3g}",
        ),
        ("Theorem 6, appendix", bounds.theorem_6(smallest, count, gamma, extents), "extents of this sample"),
        (
            "Theorem 6, ours",
            2.0 * gradient_sensitivity(smallest, count, gamma),
            "for any data, without clipping",
        ),
    ):
        yield BoundRow(theorem, what, bound, seen, f"{note}; measured: worst pair of {len(rows)} records")
