"""Federated ComBat equals the authors' ComBat on pooled rows, for any packing; site values stay local."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from inline_federations import federate
from memory import peak_memory
from patients import patients, settings, write_sites
from requests_for_tests import HandOver
from tiny import tiny, tiny_run, tiny_scenario

import raydr
from raydr.arrays import Float64Array, FloatArray, Int64Array
from raydr.data.provenance import sha256_of_file
from raydr.errors import DataError, OutputError, ScenarioError
from raydr.federation import Client, Federation, Request
from raydr.federation.messages import RefusedReplyError
from raydr.federation.wire import Call
from raydr.front.cli import status
from raydr.journal import Event, RoundEnded
from raydr.metrics.sites import separation
from raydr.privacy.ledger import Granularity
from raydr.report import wording
from raydr.report.run import mapped
from raydr.runfolder import read_run
from raydr.runfolder.model import read_model
from raydr.scenarios.afterwards.transforming import placing_of
from raydr.scenarios.planning.plan import plan_of_scenario
from raydr.scenarios.runner import run
from raydr.statistics.harmonizing import (
    Constant,
    ConstantRequest,
    Dispersion,
    DispersionRequest,
    HarmonizeRows,
    Harmonizing,
    Products,
    ProductsRequest,
    constant,
    dispersion,
    fit_harmonizing,
    products,
)
from raydr.statistics.preparing import Preparation
from raydr.statistics.scaling import Scaling, scale_rows
from raydr.statistics.site_effects import Common, Covariates, Harmonization, Kind, own_moments, shrunken

pytestmark = pytest.mark.usefixtures("no_report")

KINDS: tuple[Kind, ...] = ("center", "scale", "combat")
SIZES = (30, 50, 21)
SITES = np.repeat(np.arange(3), SIZES)


def plain_combat(
    rows: Float64Array, sites: Int64Array, kind: Kind, kept: Float64Array | None = None
) -> Float64Array:
    """Return ComBat of pooled rows as in sva: one least-squares fit of sites and covariates, then each site."""
    sites = np.unique(sites, return_inverse=True)[1]
    batches = (sites[:, None] == np.arange(sites.max() + 1)).astype(float)
    kept = np.zeros((len(rows), 0)) if kept is None else kept - kept.mean(axis=0)
    fitted = np.linalg.lstsq(np.hstack([batches, kept]), rows, rcond=None)[0]
    grand = batches.mean(axis=0) @ fitted[: batches.shape[1]]
    pooled = ((rows - np.hstack([batches, kept]) @ fitted) ** 2).mean(axis=0)
    expected = grand + kept @ fitted[batches.shape[1] :]
    standard = (rows - expected) / np.sqrt(pooled)
    result = np.empty_like(rows)
    for site in range(batches.shape[1]):
        own = standard[sites == site]
        gamma, delta = own.mean(axis=0), own.var(axis=0, ddof=1)
        if kind == "center":
            delta = np.ones_like(delta)
        elif kind == "combat":
            gamma, delta = solved(own, gamma, delta)
        result[sites == site] = (own - gamma) / np.sqrt(delta)
    return np.asarray(result * np.sqrt(pooled) + expected)


def solved(own: Float64Array, gamma: Float64Array, delta: Float64Array) -> tuple[Float64Array, Float64Array]:
    """Return the solution of sva's it.sol over the rows."""
    likely, spread = gamma.mean(), gamma.var(ddof=1)
    mean, width = delta.mean(), delta.var(ddof=1)
    a, b = (2 * width + mean**2) / width, (mean * width + mean**3) / width
    old, wide, count, change = gamma, delta, len(own), 1.0
    while change > 1e-4:
        new = (spread * count * gamma + wide * likely) / (spread * count + wide)
        wider = (0.5 * ((own - new) ** 2).sum(axis=0) + b) / (count / 2 + a - 1)
        change = max(float((abs(new - old) / old).max()), float((abs(wider - wide) / wide).max()))
        old, wide = new, wider
    return old, wide


@pytest.fixture(scope="module")
def apart() -> Float64Array:
    """Return twelve columns of three sites with different shifts and scales, and an age column."""
    random = np.random.default_rng(0)
    age = np.rint(random.normal(50, 10, len(SITES)) + 5 * SITES)
    rows = random.normal(size=(len(SITES), 12)) * random.gamma(2.0, 1.0, (3, 12))[SITES]
    rows += random.normal(size=(3, 12))[SITES] + 0.1 * np.outer(age, random.normal(size=12))
    return np.column_stack([rows, age])


def parts(rows: FloatArray, sites: Int64Array = SITES) -> list[FloatArray]:
    return [np.ascontiguousarray(rows[sites == site]) for site in range(int(sites.max()) + 1)]


def harmonized(
    federation: Federation, kind: Kind, kept: Covariates | None = None, dtype: str = "float64"
) -> tuple[FloatArray, Harmonization]:
    """Return the harmonized rows of the clients and the public result."""
    found = fit_harmonizing(federation, Harmonizing(kind, kept or Covariates(), ("age",)))
    replies = federation.ask(HandOver(federation.features, dtype))
    return np.concatenate([reply.rows for reply in replies]), found


@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_equals_combat_of_the_pooled_rows(apart: Float64Array, kind: Kind, kept: bool) -> None:
    rows = apart if kept else apart[:, :12]
    held, found = harmonized(federate(parts(rows)), kind, Covariates((12,)) if kept else None)
    expected = plain_combat(apart[:, :12], SITES, kind, apart[:, 12:] if kept else None)
    np.testing.assert_allclose(held[:, :12], expected, rtol=0, atol=1e-10)
    if kept:
        assert np.array_equal(held[:, 12], apart[:, 12]), "what is kept stays to the bit"
    assert np.array_equal(found.applied(rows, SITES), held), "the evaluation has the clients' bits"


@pytest.mark.parametrize("kind", KINDS)
def test_equals_neurocombat(apart: Float64Array, kind: Kind) -> None:
    """Compare with neuroCombat if it is installed; it is no dependency."""
    reference = pytest.importorskip("neuroCombat").neuroCombat
    pandas = pytest.importorskip("pandas")
    for kept in (False, True):
        known = pandas.DataFrame({"batch": SITES, "age": apart[:, 12]})
        expected = reference(
            apart[:, :12].T,
            known,
            "batch",
            continuous_cols=["age"] if kept else None,
            eb=kind == "combat",
            mean_only=kind == "center",
        )["data"].T
        rows = apart if kept else apart[:, :12]
        held, _ = harmonized(federate(parts(rows)), kind, Covariates((12,)) if kept else None)
        np.testing.assert_allclose(held[:, :12], expected, rtol=0, atol=1e-8)


@pytest.mark.parametrize("kind", KINDS)
def test_differences_between_classes_are_kept(apart: Float64Array, kind: Kind) -> None:
    """Differences between classes stay, as in the oracle with indicators of all classes but the first."""
    random = np.random.default_rng(1)
    classes = random.integers(0, 3, len(SITES))
    rows = apart[:, :12] + 3.0 * random.normal(size=(3, 12))[classes]
    own = tuple(classes[site == SITES] for site in range(3))
    held, found = harmonized(federate(parts(rows), classes=own), kind, Covariates((), 3))
    indicators = (classes[:, None] == np.arange(1, 3)).astype(float)
    np.testing.assert_allclose(held, plain_combat(rows, SITES, kind, indicators), rtol=0, atol=1e-10)
    assert np.array_equal(found.applied(rows, SITES, classes), held)


@pytest.mark.parametrize("kind", KINDS)
def test_bits_do_not_depend_on_packing(apart: Float64Array, kind: Kind) -> None:
    one, _ = harmonized(federate(parts(apart)), kind, Covariates((12,)))
    other, _ = harmonized(federate(parts(apart), packing=[1, 2]), kind, Covariates((12,)))
    assert np.array_equal(one, other)


@pytest.mark.parametrize("kind", KINDS)
def test_harmonizing_is_accurate_far_from_zero(apart: Float64Array, kind: Kind) -> None:
    """Only the digits that doubles lose at 1e8 are lost."""
    far = apart[:, :12] + 1e8
    held, _ = harmonized(federate(parts(far)), kind)
    expected = plain_combat(far - 1e8, SITES, kind)
    np.testing.assert_allclose(held - 1e8, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_float32_rows_stay_float32(apart: Float64Array, kind: Kind) -> None:
    rows = apart[:, :12].astype(np.float32)
    held, _ = harmonized(federate(parts(rows)), kind, dtype="float32")
    np.testing.assert_allclose(held, plain_combat(rows.astype(np.float64), SITES, kind), atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_harmonizing_does_not_depend_on_units(apart: Float64Array, kind: Kind) -> None:
    unit = np.logspace(-9, 9, 12)
    held, _ = harmonized(federate(parts(apart[:, :12] * unit)), kind)
    np.testing.assert_allclose(held / unit, harmonized(federate(parts(apart[:, :12])), kind)[0], atol=1e-9)


def test_harmonized_sites_have_equal_mean_and_deviation(apart: Float64Array) -> None:
    for kind in ("center", "scale"):
        held, found = harmonized(federate(parts(apart)), kind)
        assert (found.common.middle.shape, found.common.slopes.shape) == ((0,), (0, 13))  # nothing is kept
        for own in parts(held):
            np.testing.assert_allclose(own.mean(axis=0), apart.mean(axis=0), atol=1e-10)
    deviations = np.stack([own.std(axis=0, ddof=1) for own in parts(held)])
    np.testing.assert_allclose(deviations, np.broadcast_to(deviations[0], (3, 13)), rtol=1e-12)
    assert separation(held, SITES)["site_silhouette"] < separation(apart, SITES)["site_silhouette"]  # type: ignore[operator]


@pytest.mark.parametrize("kind", KINDS)
def test_only_sums_are_sent_and_site_values_stay_local(apart: Float64Array, kind: Kind) -> None:
    federation = federate(parts(apart))
    harmonized(federation, kind, Covariates((12,)))
    reported = {entry.kind: entry for entry in federation.ledger.entries.values() if entry.direction == "up"}
    sums = {"Beyond", "Moment", "Products"}
    sums |= {"Dispersion"} if kind != "center" else set()
    sums |= {"Constant"} if kind == "combat" else set()
    assert sums <= set(reported)
    assert set(reported) - sums <= {"Enrolment", "Held"}
    for name in sums:
        assert reported[name].granularity is Granularity.AGGREGATE
        assert reported[name].public is None, "it costs privacy, and the accountant charges it"
    (own,) = (entry for entry in federation.ledger.entries.values() if entry.kind == "OwnEffect")
    assert own.direction == "simulation-only"


def test_site_of_one_row_is_harmonized(apart: Float64Array) -> None:
    """Its row moves to the mean, under ComBat at most half-way, and no other site loses its scale."""
    rows, sites = np.vstack([apart, apart[:1] + 9.0]), np.append(SITES, 3)
    for kind in ("center", "scale"):
        held, _ = harmonized(federate(parts(rows, sites)), kind)
        np.testing.assert_allclose(held[-1], rows.mean(axis=0), atol=1e-10)
    held, found = harmonized(federate(parts(rows, sites)), "combat")
    assert np.array_equal(found.effects[3].factor, np.ones(13))
    assert not (found.effects[0].factor == 1.0).any()
    unit = found.common.deviation
    gamma = (rows[-1] - rows.mean(axis=0)) / unit
    spread = gamma.var(ddof=1)
    expected = rows[-1] - unit * (spread * gamma + gamma.mean()) / (
        spread + 1.0
    )  # postmean in sva, for one row
    np.testing.assert_allclose(held[-1], expected, atol=1e-9)


def test_site_of_one_row_keeps_its_variances() -> None:
    gamma, delta = np.array([0.5, -1.0, 2.0]), np.array([0.5, 1.0, 4.0])
    np.testing.assert_array_equal(shrunken(gamma, delta, 1)[1], delta)


def test_equal_rows_have_zero_variance() -> None:
    common = Common(
        kind="scale",
        covariates=Covariates(),
        centre=np.array([0.1]),
        deviation=np.ones(1),
        adjusted=np.ones(1, np.bool_),
        middle=np.zeros(0),
        slopes=np.zeros((0, 1)),
    )
    mean, variance = own_moments(np.zeros((23, 1)), None, common)
    assert mean[0] == pytest.approx(-0.1)
    assert variance[0] == 0.0 < np.full(23, 0.1).std()  # rounding error


def test_sites_without_rows_change_nothing(apart: Float64Array) -> None:
    for kind in KINDS:
        there, _ = harmonized(federate(parts(apart)), kind)
        with_empty, found = harmonized(federate([apart[:0], *parts(apart), apart[:0]]), kind)
        assert np.array_equal(there, with_empty)
        assert not found.effects[0].shift.any()
        assert len(found.effects) == 5


def test_constant_columns_are_harmonized(apart: Float64Array) -> None:
    """Columns are constant everywhere, at one site, or with another value at each site."""
    rows = apart.copy()
    rows[:, 0] = 0.1
    rows[SITES == 1, 1] = 7.0
    rows[:, 2] = SITES
    combat, found = harmonized(federate(parts(rows)), "combat")
    assert np.flatnonzero(~found.common.adjusted).tolist() == [0, 1, 2]
    assert np.array_equal(combat[:, :3], rows[:, :3]), "as sva leaves them, to the bit"
    np.testing.assert_allclose(combat[:, 3:], plain_combat(rows[:, 3:], SITES, "combat"), atol=1e-10)
    for kind in ("center", "scale"):
        held, _ = harmonized(federate(parts(rows)), kind)
        np.testing.assert_allclose(held[:, 0], 0.1, atol=1e-15)
        np.testing.assert_allclose(held[SITES == 1, 1], rows[:, 1].mean(), atol=1e-12)
        np.testing.assert_allclose(held[:, 2], SITES.mean(), atol=1e-12)


def test_identical_columns_are_harmonized_alike() -> None:
    """The prior has no width: sva divides by it, raydr uses the site's own estimate."""
    column = np.random.default_rng(2).normal(size=60)
    rows, sites = np.column_stack([column, column, column]), np.arange(60) % 3
    held, _ = harmonized(federate(parts(rows, sites)), "combat")
    assert np.isfinite(held).all()
    assert np.array_equal(held[:, 0], held[:, 1])


def test_products_are_of_deviations_from_own_site_means() -> None:
    """Feature and covariate are 10^9 deviations away; their rounding errors are not multiplied."""
    random = np.random.default_rng(3)
    rows = np.rint(2**10 * random.normal(size=(3000, 4))) / 2**10 + [1e8, -1e8, 0.0, 1e6 / 3.0]
    request = ProductsRequest(
        Covariates((3,)), np.full(4, 0.25), np.full(4, 2e8), np.zeros(1), np.array([1e6])
    )
    reported = products(Client(index=0, rows=rows, seed=0), request)
    seen = rows.astype(np.longdouble)
    seen -= seen.mean(axis=0)
    exact = (seen[:, 3:] * seen).mean(axis=0).astype(np.float64)
    np.testing.assert_allclose(reported.middle, rows[:, 3].mean(), rtol=1e-12)
    np.testing.assert_allclose(reported.across[0], exact, atol=1e-7)
    np.testing.assert_allclose(reported.within[0], exact[3:], atol=1e-7)


def test_slopes_are_accurate_far_from_zero() -> None:
    random = np.random.default_rng(4)
    rows = np.rint(2**10 * random.normal(size=(len(SITES), 4))) / 2**10
    near, far = (
        harmonized(federate(parts(rows + offset)), "center", Covariates((3,)))[1].common.slopes
        for offset in (np.zeros(4), np.array([1e8, -1e8, 1e8, 0.0]))
    )
    np.testing.assert_allclose(far, near, atol=1e-11)


def test_site_with_an_opposite_trend_is_accepted() -> None:
    """Its rows deviate more than those of all others, and no range refuses them."""
    ages = np.tile([-1.0, 1.0], 50)
    large, small = np.column_stack([ages, ages]), np.array([[-1.0, 1.0], [1.0, -1.0]])
    held, found = harmonized(federate([large, small]), "scale", Covariates((1,)))
    assert found.common.slopes[0, 0] == pytest.approx(98 / 102)
    residuals = np.append(1 - 98 / 102, 1 + 98 / 102)
    deviation = np.sqrt((residuals**2 * [100, 2]).sum() / 102)
    assert found.common.deviation[0] == pytest.approx(deviation)
    assert np.isfinite(held).all()


def test_extreme_covariate_predictions_are_accepted() -> None:
    """The feature is the difference of two correlated columns, except at a site of two rows."""
    random = np.random.default_rng(0)
    first, apart = random.choice([-1.0, 1.0], (2, 4000))
    large = np.column_stack([0.1 * apart, first, first - 0.1 * apart])
    small = np.array([[0.0, 1.0, -1.0], [0.0, -1.0, 1.0]])
    _, found = harmonized(federate([large, small]), "scale", Covariates((1, 2)))
    rows = np.concatenate([large, small])  # both sites have nearly equal means
    slopes = np.linalg.lstsq(rows[:, 1:] - rows[:, 1:].mean(axis=0), rows[:, 0] - rows[:, 0].mean())[0]
    np.testing.assert_allclose(found.common.slopes[:, 0], slopes, rtol=1e-2)
    assert abs(small[0, 1:] @ slopes) > 1.5 > 8.0 * np.abs(rows[:, 0]).max()


def test_deviations_stay_within_declared_ranges() -> None:
    """Half of a client's rows are at one end of all ranges and half at the other."""
    reach, kept = np.array([3.0, 4.0]), np.array([0.5])
    rows = np.array([[3.0, -4.0, 0.5], [-3.0, 4.0, -0.5]])
    covariates, zero = Covariates((2,)), np.zeros(3)
    request = ProductsRequest(covariates, zero, np.append(reach, kept), np.zeros(1), kept)
    reported, declared = products(Client(index=0, rows=rows, seed=0), request), Products.ranges(request, 2)
    for name in ("middle", "within", "across"):
        declared[name].check(name, getattr(reported, name))
    np.testing.assert_array_equal(np.abs(reported.within), declared["within"].largest)
    np.testing.assert_array_equal(np.abs(reported.across), declared["across"].largest)
    common = Common(
        kind="scale",
        covariates=covariates,
        centre=zero,
        deviation=zero,
        adjusted=np.ones(3, bool),
        middle=np.zeros(1),
        slopes=np.array([[6.0, 8.0, 0.0]]),
    )
    away = DispersionRequest(common, np.append(reach + kept * [6.0, 8.0], kept))
    against = rows * [1.0, 1.0, np.nan]
    against[:, 2] = [-0.5, 0.5]
    seen = dispersion(Client(index=0, rows=against, seed=0), away).variance
    assert seen[0] == Dispersion.ranges(away, 2)["variance"].largest[0] == 36.0


def test_covariate_constant_within_sites_is_refused(apart: Float64Array) -> None:
    """Columns of zeros, or narrower than 10^-9 of the site distances; columns small everywhere are valid."""
    jitter = 0.01 * np.random.default_rng(5).normal(size=len(SITES))
    for kept in (np.zeros(len(SITES)), 1e9 * SITES + jitter):
        with pytest.raises(DataError, match="'age', which has one value within each"):
            harmonized(federate(parts(np.column_stack([apart[:, :3], kept]))), "center", Covariates((3,)))
    held, _ = harmonized(
        federate(parts(np.column_stack([apart[:, :12], 1e-9 * apart[:, 12]]))), "center", Covariates((12,))
    )
    expected, _ = harmonized(federate(parts(apart)), "center", Covariates((12,)))
    np.testing.assert_allclose(held[:, :12], expected[:, :12], atol=1e-9)


def test_dependent_covariates_are_named(apart: Float64Array) -> None:
    """Other covariates may be correlated."""
    random = np.random.default_rng(6)
    free, dose = random.normal(size=(2, len(SITES)))
    alike = free[:, None] + 0.3 * random.normal(size=(len(SITES), 4))
    rows = np.column_stack([apart[:, :3], alike, dose, dose + 0.5 * SITES])
    wanted = Harmonizing("center", Covariates(tuple(range(3, 9))), (*"abcd", "dose", "twice"))
    with pytest.raises(
        DataError, match=r"within sites, '(dose|twice)' .* covariates, among them '(dose|twice)'"
    ):
        fit_harmonizing(federate(parts(rows)), wanted)
    classes = tuple((np.arange(size) % 2 == 0).astype(np.int64) for size in SIZES)
    with pytest.raises(DataError, match="'covariate 1', which has one value within each site"):
        fit_harmonizing(
            federate(parts(apart), classes=tuple(0 * own for own in classes)),
            Harmonizing("center", Covariates((12,), 2), ("age",)),
        )


def test_column_constant_up_to_rounding_is_unchanged(apart: Float64Array) -> None:
    rows = apart[:, :12].copy()
    rows[:, 0] = np.where(np.arange(len(SITES)) % 2, 0.3, 0.1 + 0.2)
    held, found = harmonized(federate(parts(rows)), "combat")
    assert np.flatnonzero(~found.common.adjusted).tolist() == [0]
    assert np.array_equal(held[:, 0], rows[:, 0])


def test_client_reports_constant_columns_if_it_has_two_rows() -> None:
    rows = np.array([[1.0, 2.0, 0.1], [1.0, 3.0, 0.1]])
    request = ConstantRequest(3)
    assert constant(Client(index=0, rows=rows, seed=0), request).votes.tolist() == [1, 0, 1]
    assert constant(Client(index=0, rows=rows[:1], seed=0), request).votes.tolist() == [0, 0, 0]
    assert constant(Client(index=0, rows=rows[:0], seed=0), request).votes.tolist() == [0, 0, 0]
    declared = Constant.ranges(request, 2)["votes"]
    declared.check("votes", np.ones(3, np.int64))
    with pytest.raises(RefusedReplyError, match="outside the declared range"):
        declared.check("votes", np.full(3, 2))


@pytest.mark.parametrize("kind", KINDS)
def test_two_sites_one_with_two_rows_equal_combat_of_the_pooled_rows(apart: Float64Array, kind: Kind) -> None:
    chosen = np.r_[:30, 30, 31]
    held, _ = harmonized(federate(parts(apart[chosen, :12], SITES[chosen])), kind)
    np.testing.assert_allclose(held, plain_combat(apart[chosen, :12], SITES[chosen], kind), atol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_block_size_does_not_change_harmonized_rows(
    apart: Float64Array, kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, _ = harmonized(federate(parts(apart)), kind, Covariates((12,)))
    monkeypatch.setattr("raydr.geometry.points._VALUES", 7 * 13)
    held, found = harmonized(federate(parts(apart)), kind, Covariates((12,)))
    np.testing.assert_allclose(held, whole, atol=1e-10)
    assert np.array_equal(found.applied(apart, SITES), held)


def test_covariates_are_columns_and_class_indicators() -> None:
    rows, classes = np.arange(6.0).reshape(3, 2), np.array([2, 0, 1])
    assert Covariates().classes == 0
    kept = Covariates((1,), 3)
    assert kept.count == 3
    assert kept.of(rows, classes).tolist() == [[1.0, 0.0, 1.0], [3.0, 0.0, 0.0], [5.0, 1.0, 0.0]]
    with pytest.raises(ValueError, match="these rows have none"):
        kept.of(rows, None)
    for classes_there in (0, 1):
        alone = Covariates((1,), classes_there)
        assert alone.count == 1
        assert alone.of(rows, None).tolist() == [[1.0], [3.0], [5.0]]


def test_requests_declare_that_they_read_classes() -> None:
    """With one class nothing is read, and noise on records covers everything."""
    for classes in (0, 1, 2):
        kept = Covariates((), classes)
        common = Common(
            kind="scale",
            covariates=kept,
            centre=np.zeros(2),
            deviation=np.zeros(2),
            adjusted=np.ones(2, bool),
            middle=np.zeros(0),
            slopes=np.zeros((0, 2)),
        )
        reading: list[Request[Any]] = [
            ProductsRequest(kept, *np.zeros((2, 2)), *np.zeros((2, kept.count))),
            DispersionRequest(common, np.ones(2)),
            HarmonizeRows(common),
        ]
        assert [request.reads_classes for request in reading] == [classes == 2] * 3
    assert HarmonizeRows.sets_state, "a restarted client must receive it again"


def test_empirical_bayes_needs_two_varying_columns(apart: Float64Array) -> None:
    rows = apart[:, :4].copy()
    rows[SITES == 1, :2] = 5.0
    _, found = harmonized(federate(parts(rows)), "combat")
    assert found.common.adjusted.tolist() == [False, False, True, True]
    rows[SITES == 0, 2] = 5.0
    with pytest.raises(DataError, match=r"there is one\. Set it to scale"):
        harmonized(federate(parts(rows)), "combat")
    rows[SITES == 2, 3] = 5.0
    with pytest.raises(DataError, match=r"there are none\. Set it to scale"):
        harmonized(federate(parts(rows)), "combat")


@pytest.mark.parametrize("kind", KINDS)
def test_preparation_is_restored_from_its_arrays(apart: Float64Array, kind: Kind) -> None:
    """Adjustments kept at sites are restored; without them only the common part is."""
    classes = np.random.default_rng(1).integers(0, 3, len(SITES))
    own = tuple(classes[site == SITES] for site in range(3))
    _, found = harmonized(federate(parts(apart), classes=own), kind, Covariates((12,), 3))
    scaling = Scaling(apart.mean(axis=0), 1.0 / apart.std(axis=0), np.full(13, 0.5))
    before = Preparation(scaling, found)
    holed = apart.copy()
    holed[::7, 3] = np.nan
    after = Preparation.of(before.arrays, before.kept_at_sites, "euclidean", kind)
    expected = before.applied(holed, SITES, classes)
    assert np.array_equal(after.applied(holed, SITES, classes), expected)
    filled_in = np.where(np.isnan(holed), 0.5, holed)
    whole = Scaling(scaling.shift, scaling.factor)
    assert np.array_equal(expected, scale_rows(found.applied(filled_in, SITES, classes), whole))
    assert np.array_equal(before.applied(holed), scale_rows(holed, scaling)), "no site's rows stay"
    alone = Preparation.of(before.arrays, {}, "euclidean", kind)
    assert alone.harmonization is not None
    assert alone.harmonization.effects == ()
    assert np.array_equal(alone.harmonization.common.adjusted, found.common.adjusted)
    assert before.kept_at_sites["shift"].shape == (3, 13)
    uneven = dict(before.kept_at_sites)
    uneven["factor"] = uneven["factor"][:2]
    with pytest.raises(ValueError, match="zip"):
        Preparation.of(before.arrays, uneven, "euclidean", kind)
    plain = Preparation.of(scaling.arrays, {}, "cosine", None)
    assert plain.harmonization is None
    assert plain.transformation.metric == "cosine"
    assert plain.kept_at_sites == {}
    assert set(plain.arrays) == {"shift", "factor", "fill"}
    expected = plain.transformation.applied(scale_rows(holed, plain.scaling))
    assert np.array_equal(plain.applied(holed, SITES), expected)


def test_rows_of_no_site_are_scaled_by_their_own_statistics() -> None:
    """Scaling is as at clients: columns constant up to rounding, or without an inverse, become 0."""
    from sklearn.preprocessing import MinMaxScaler, StandardScaler

    rows = np.random.default_rng(2).normal(size=(30, 3)) * [1.0, 1e3, 1e-3] + [5.0, 0.0, 1.0]
    holed = rows.copy()
    holed[4, 1] = np.nan
    rows[4, 1] = 7.0
    prepared = Preparation(Scaling(np.zeros(3), np.ones(3), np.array([0.0, 7.0, 0.0])))
    for scale, oracle in (("standard", StandardScaler()), ("minmax", MinMaxScaler())):
        found = prepared.without_harmonizing(holed, scale)  # type: ignore[arg-type]
        np.testing.assert_allclose(found, oracle.fit_transform(rows), atol=1e-9)
    assert np.array_equal(prepared.without_harmonizing(holed, "none"), rows)
    still = np.column_stack([np.tile([0.3, 0.1 + 0.2], 20), np.tile([0.0, 5e-324], 20), np.arange(40.0)])
    plain = Preparation(Scaling(np.zeros(3), np.ones(3)))
    assert not plain.without_harmonizing(still, "standard")[:, 0].any()
    assert not plain.without_harmonizing(still, "minmax")[:, 1].any()


def test_unsuitable_tables_are_refused(apart: Float64Array) -> None:
    with pytest.raises(DataError, match="all rows belong to one client"):
        harmonized(federate([apart, apart[:0]]), "center")
    with pytest.raises(DataError, match="Within each site all rows are equal"):
        harmonized(federate(list(apart[:, None])), "scale")
    with pytest.raises(DataError, match=r"there is one\. Set it to scale"):
        harmonized(federate(parts(apart[:, :1])), "combat")
    rows = np.column_stack([apart[:, :3], SITES])
    with pytest.raises(DataError, match="'age', which has one value within each"):
        harmonized(federate(parts(rows)), "center", Covariates((3,)))
    twice = np.column_stack([apart[:, :3], apart[:, 12], 2.0 * apart[:, 12] + SITES])
    with pytest.raises(DataError, match="follows from the other covariates"):
        harmonized(federate(parts(twice)), "center", Covariates((3, 4)))


def test_harmonizing_many_columns_takes_the_memory_of_two_tables() -> None:
    rows = np.random.default_rng(0).normal(size=(120, 20_000)).astype(np.float32)
    sites = np.arange(120) % 3
    federation = federate(parts(rows, sites))
    with peak_memory() as peak:
        found = fit_harmonizing(federation, Harmonizing("combat"))
    # The adjusted rows, in single precision; requests, votes, sums and their ring of 8 bytes a feature; blocks.
    assert peak.bytes < 2 * rows.nbytes + 60_000_000
    expected = plain_combat(rows[:, :50].astype(np.float64), sites, "scale")
    held, _ = harmonized(federate(parts(rows[:, :50], sites)), "scale", dtype="float32")
    np.testing.assert_allclose(held[np.argsort(np.argsort(sites, kind="stable"))], expected, atol=1e-5)
    assert found.common.adjusted.all()


# --- runs -------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a table of hospitals with missing values, an offset in the west, and a column named $x_$."""
    path = patients(tmp_path_factory.mktemp("table") / "patients.csv")
    lines = path.read_text().splitlines()
    for number, line in enumerate(lines[1:], 1):
        hospital, age, *others = line.split(",")
        if hospital == "west" and others[0]:
            others[0] = f"{float(others[0]) + 40:.3f}"
        lines[number] = ",".join([hospital, age, *others])
    path.write_text("\n".join(lines).replace("bmi", "$x_$") + "\n")
    return path


def filled(table: Path) -> tuple[Float64Array, Int64Array]:
    """Return the rows before the adjustment, and the sites in name order."""
    rows = np.genfromtxt(table, delimiter=",", skip_header=1, usecols=(1, 2, 3, 4))
    sites = np.genfromtxt(table, delimiter=",", skip_header=1, usecols=[0], dtype=np.str_)
    return np.where(np.isnan(rows), np.nanmedian(rows, axis=0), rows), np.unique(sites, return_inverse=True)[
        1
    ]


@pytest.mark.parametrize("kind", ["center", "scale"])
def test_run_equals_a_run_of_harmonized_rows(tmp_path: Path, table: Path, kind: Kind) -> None:
    """The order is missing values, sites, scale; the pooled map is of the same rows."""
    folder = tiny_run(tmp_path / "run", **settings(table, harmonize=kind), compare=["central"])
    rows, sites = filled(table)
    adjusted = rows.copy()
    for site in range(3):
        own = rows[sites == site] - rows[sites == site].mean(axis=0)
        if kind == "scale":
            within = np.sqrt(sum(rows[sites == one].var(axis=0) * np.mean(sites == one) for one in range(3)))
            deviation = rows[sites == site].std(axis=0, ddof=1)
            own *= np.where(deviation > 1e-9, within / np.maximum(deviation, 1e-9), 1.0)
        adjusted[sites == site] = rows.mean(axis=0) + own
    lines = table.read_text().splitlines()
    for number, row in enumerate(adjusted.tolist(), 1):
        hospital, *_, diagnosis = lines[number].split(",")
        lines[number] = ",".join([hospital, *map(repr, row), diagnosis])
    (tmp_path / "whole.csv").write_text("\n".join(lines) + "\n")
    other = tiny_run(tmp_path / "other", **settings(tmp_path / "whole.csv", "error"), compare=["central"])
    for file in ("embedding.parquet", "central.parquet"):
        one, two = (
            np.stack([pq.read_table(at / file)[axis].to_numpy() for axis in "xy"]) for at in (folder, other)
        )
        np.testing.assert_allclose(one, two, atol=1e-6)


def test_run_reports_site_separation(tmp_path: Path, table: Path) -> None:
    folder = tiny_run(tmp_path / "run", **settings(table, harmonize="combat"))
    run_folder = read_run(folder)
    found = run_folder.data.harmonized
    assert found is not None
    assert (found.kind, found.keep, found.unchanged) == ("combat", (), ("insulin",))
    rows, sites = filled(table)
    before = separation((rows - rows.mean(axis=0)) / rows.std(axis=0), sites)
    assert found.before == pytest.approx(before)
    assert found.before["site_mixing"] < found.after["site_mixing"]  # type: ignore[operator]
    (fact,) = (fact for fact in mapped.facts(run_folder.data) if fact.name == "Sites harmonized")
    assert "This also removes real differences between sites" in fact.text
    one, two = (wording.measure(value) for value in (found.before["site_mixing"], found.after["site_mixing"]))
    assert f"mixing of the sites {one} before, {two} after" in fact.text
    assert "unchanged: insulin" in fact.text
    (entry,) = (entry for entry in run_folder.ledger if entry.kind == "OwnEffect")
    assert entry.direction == "simulation-only"


def test_ray_matches_inline_for_filled_and_harmonized_rows(
    cluster: None, tmp_path: Path, table: Path
) -> None:
    content = settings(table, harmonize={"kind": "combat", "keep": ["age", "label"]})
    inline = tiny_run(tmp_path / "inline", **content)
    on_ray = tiny_run(tmp_path / "ray", **content, runtime={"federation": "ray", "actors": 2})
    for name in ("embedding.parquet", "ledger.json", "data.json", "metrics.json", "model/sites.npz"):
        assert (inline / name).read_bytes() == (on_ray / name).read_bytes()


def test_secure_aggregation_hides_harmonizing_sums(tmp_path: Path, table: Path) -> None:
    arrays = []
    for secure in (False, True):
        content = settings(table, harmonize={"kind": "combat", "keep": ["age"]})
        folder = tiny_run(tmp_path / str(secure), **content, privacy={"secure_aggregation": secure})
        ledger = {entry.kind: entry for entry in read_run(folder).ledger if entry.direction == "up"}
        for kind in ("Products", "Dispersion", "Constant", "Moment"):
            assert ledger[kind].secure == secure
        arrays.append(read_model(folder))
    for name, values in arrays[0].arrays.items():
        assert np.array_equal(values, arrays[1].arrays[name])
    assert np.array_equal(arrays[0].own["shift"], arrays[1].own["shift"])


def test_site_files_are_harmonized_like_one_table(tmp_path: Path) -> None:
    """Cases: another column order, a column that one site lacks, and classes from the label."""
    table = patients(tmp_path / "patients.csv")
    harmonize = {"kind": "scale", "keep": ["diagnosis", "age"]}
    one = tiny_run(tmp_path / "one", **settings(table, harmonize=harmonize))
    sited = settings(table) | {
        "data": {"label": "diagnosis", "missing": "median", "scale": "standard", "harmonize": harmonize},
        "clients": {"sites": write_sites(tmp_path, table)},
    }
    other = tiny_run(tmp_path / "other", **sited)
    first, second = (
        sorted(pq.read_table(at / "embedding.parquet").select(["client", "x", "y"]).to_pylist(), key=str)
        for at in (one, other)
    )
    assert first == second
    found, again = read_run(one).data.harmonized, read_run(other).data.harmonized
    assert found is not None
    assert again is not None
    assert found.keep == again.keep == ("age", "the label")
    assert found.after == pytest.approx(again.after)


def test_resumed_run_has_the_same_harmonized_rows(tmp_path: Path, table: Path) -> None:
    content = settings(table, harmonize={"kind": "combat", "keep": ["label"]}) | {
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
    for name in ("embedding.parquet", "data.json", "model/arrays.npz", "model/sites.npz"):
        assert (resumed / name).read_bytes() == (straight / name).read_bytes()


def test_new_rows_are_adjusted_like_their_site(tmp_path: Path, table: Path) -> None:
    content = settings(table, harmonize="scale") | {
        "method": {"kind": "fed-tsne", "landmarks": 8, "rounds": 2, "early_iterations": 5, "iterations": 5}
    }
    folder = tiny_run(tmp_path / "run", **content)

    def placed(data: Path, **options: Any) -> list[dict[str, Any]]:
        raydr.transform(folder, data, out=tmp_path / "out.parquet", **options)
        rows: list[dict[str, Any]] = pq.read_table(tmp_path / "out.parquet").to_pylist()
        return rows

    assert status(["transform", str(folder), str(table), "--out", str(tmp_path / "cli.csv")]) == 0
    own, lines = placed(table), table.read_text().splitlines()
    east = [row for row, line in enumerate(lines[1:]) if line.startswith("east")]
    (tmp_path / "east.csv").write_text("\n".join([lines[0], *(lines[row + 1] for row in east)]) + "\n")
    (tmp_path / "unsaid.csv").write_text(
        "\n".join(line.partition(",")[2] for line in (tmp_path / "east.csv").read_text().splitlines()) + "\n"
    )
    alone = placed(tmp_path / "unsaid.csv", site="east")
    for there, row in zip(alone, east, strict=True):
        assert (there["x"], there["y"]) == (own[row]["x"], own[row]["y"])
    assert placed(tmp_path / "unsaid.csv", site="west") != alone
    (tmp_path / "called.csv").write_text((tmp_path / "east.csv").read_text().replace("hospital", "where"))
    assert placed(tmp_path / "called.csv", site="where") == alone
    with pytest.raises(DataError, match="does not name the site of its rows"):
        placed(tmp_path / "unsaid.csv")
    with pytest.raises(DataError, match="neither a site of the run"):
        placed(tmp_path / "unsaid.csv", site="south")
    (tmp_path / "strange.csv").write_text((tmp_path / "east.csv").read_text().replace("east", "easte"))
    with pytest.raises(DataError, match=r"rows of 'easte' \(did you mean east\?\)"):
        placed(tmp_path / "strange.csv")
    (folder / "model" / "sites.npz").unlink()
    with pytest.raises(OutputError, match=r"Only\W+a site that kept its own"):
        placed(table)


def test_changed_or_foreign_site_adjustments_are_refused(tmp_path: Path, whole: Path) -> None:
    """The model has no digest of the file."""
    folder, other = (
        tiny_run(tmp_path / kind, **settings(whole, "error", harmonize=kind)) for kind in ("scale", "center")
    )
    sites = folder / "model" / "sites.npz"
    with np.load(sites) as file:
        kept = dict(file)
    whole_file = sites.read_bytes()
    assert read_model(folder).own.keys() == kept.keys() - {"made_from"}
    for content in (kept | {name: values * 1.5 for name, values in kept.items() if values.ndim == 2}, {}):
        np.savez(sites, **content)
        with pytest.raises(OutputError, match=r"sites.npz is not the file that the run wrote"):
            read_model(folder)
    sites.write_bytes((other / "model" / "sites.npz").read_bytes())
    with pytest.raises(OutputError, match=r"sites.npz is not the file that the run wrote"):
        read_model(folder)
    sites.write_bytes(whole_file)
    card = (folder / "model" / "model.json").read_text()
    assert "sites.npz" not in card
    for digest in (sha256_of_file(sites), str(kept["made_from"])):
        assert digest not in card


def test_transform_without_harmonizing_needs_no_site(tmp_path: Path, table: Path) -> None:
    folder = tiny_run(tmp_path / "run", **settings(table))
    with pytest.raises(ScenarioError, match="did not adjust sites to each other"):
        raydr.transform(folder, table, out=tmp_path / "out.csv", site="east")


def test_held_out_rows_are_adjusted(tmp_path: Path, table: Path) -> None:
    content = settings(table, harmonize="scale", holdout=0.25)
    folder = tiny_run(tmp_path / "run", **content, metrics="default")
    held = pq.read_table(folder / "held_out.parquet").to_pylist()
    raydr.transform(folder, table, out=tmp_path / "all.parquet")
    everywhere = pq.read_table(tmp_path / "all.parquet").to_pylist()
    for row in held:
        assert (row["x"], row["y"]) == (everywhere[row["row"]]["x"], everywhere[row["row"]]["y"])
    lines = table.read_text().splitlines()
    split = [f"{line},{'new' if line.startswith('west') else 'old'}" for line in lines[1:]]
    (tmp_path / "split.csv").write_text("\n".join([lines[0] + ",split", *split]) + "\n")
    marked = settings(tmp_path / "split.csv", harmonize="center", holdout={"column": "split", "value": "new"})
    with pytest.raises(DataError, match="held-out rows of 'west'"):
        tiny_run(tmp_path / "marked", **marked)


def test_kept_label_forbids_placing_new_rows(tmp_path: Path, table: Path) -> None:
    content = settings(table, harmonize={"kind": "combat", "keep": ["label"]})
    folder = tiny_run(tmp_path / "run", **content)
    with pytest.raises(ScenarioError, match="new rows have no label"):
        raydr.transform(folder, table, out=tmp_path / "out.csv")
    with pytest.raises(ScenarioError, match="placed with the label that they are scored by"):
        tiny_scenario(**settings(table, harmonize={"kind": "combat", "keep": ["label"]}, holdout=0.2))
    centred = tiny_run(
        tmp_path / "centred", **settings(table, harmonize={"kind": "center", "keep": ["label"]})
    )
    raydr.transform(
        centred, table, out=tmp_path / "out.csv"
    )  # if only the place is adjusted, the label is not needed


def test_categories_can_be_kept(tmp_path: Path, table: Path) -> None:
    lines = table.read_text().splitlines()
    smoking = [f"{line},{('no', 'former', 'yes')[row % 3]}" for row, line in enumerate(lines[1:])]
    (tmp_path / "smoking.csv").write_text("\n".join([lines[0] + ",smoker", *smoking]) + "\n")
    content = settings(
        tmp_path / "smoking.csv", categories="one-hot", harmonize={"kind": "scale", "keep": ["smoker"]}
    )
    found = read_run(tiny_run(tmp_path / "run", **content)).data.harmonized
    assert found is not None
    assert found.keep == ("smoker=no", "smoker=yes")
    content["data"]["harmonize"]["keep"] = ["smokers"]
    with pytest.raises(
        DataError, match=r"'smokers', which is neither a mapped column .* \(did you mean smoker"
    ):
        tiny_run(tmp_path / "other", **content)


def test_invalid_harmonizing_scenarios_are_refused(table: Path) -> None:
    with pytest.raises(ScenarioError, match=r"clients\.partition makes clients that are not sites"):
        tiny_scenario(data__harmonize="center")
    with pytest.raises(ScenarioError, match=r"data\.harmonize would reveal the means that the key hides"):
        tiny_scenario(**settings(table, "error", harmonize="center"), privacy={"isometry_key": True})
    with pytest.raises(ScenarioError, match="harmonize"):
        tiny_scenario(**settings(table, harmonize="combats"))
    assert tiny_scenario(**settings(table, harmonize="none")).data.harmonize is None


def test_strict_run_refuses_unprotected_sums(tmp_path: Path) -> None:
    lines = [f"{row % 3},{row % 7},{row % 5}" for row in range(60)]
    (tmp_path / "plain.csv").write_text("\n".join(["site,a,b", *lines]) + "\n")
    scenario = tiny_scenario(
        data={"path": str(tmp_path / "plain.csv"), "features": ["a", "b"], "harmonize": "center"},
        clients={"partition": {"kind": "by-column", "column": "site"}},
        method=tiny()["method"] | {"gamma": 1.0, "bounds": [0, 7]},
        privacy={"noise": {"on": "gradient", "epsilon": 5.0}, "strict": "sums"},
    )
    with pytest.raises(ScenarioError, match=r"no data\.harmonize"):
        run(scenario, out=tmp_path / "run")


@pytest.mark.parametrize("harmonize", ["center", {"kind": "combat", "keep": ["age", "label"]}])
def test_plan_counts_harmonizing_messages(tmp_path: Path, table: Path, harmonize: Any) -> None:
    from raydr.actors.capacity import capacity_at

    content = settings(table, harmonize=harmonize)
    planned = plan_of_scenario(tiny_scenario(**content), capacity=capacity_at("local"), data_dir=None)
    kinds = ("Products", "Dispersion", "DispersionRequest", "Constant", "HarmonizeRows", "Moment", "Beyond")
    ran = {
        (entry.kind, entry.direction): (entry.count, entry.bytes)
        for entry in read_run(tiny_run(tmp_path / "run", **content)).ledger
        if entry.kind in kinds
    }
    assert len(ran) >= 3
    reported = {(entry.kind, entry.direction): (entry.count, entry.bytes) for entry in planned.messages}
    assert {key: reported[key] for key in ran} == ran


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, table: Path) -> Path:
    """Return the same table without missing values."""
    path = tmp_path_factory.mktemp("whole") / "patients.csv"
    lines = table.read_text().splitlines()
    cells = [[cell or "50.5" for cell in line.split(",")] for line in lines]
    path.write_text("\n".join(map(",".join, cells)) + "\n")
    return path


NOISE = {"on": "data", "clip": 100.0, "multiplier": 1.0, "stage": "all"}


def test_noise_on_records_does_not_cover_classes(tmp_path: Path, whole: Path) -> None:
    """Means of class indicators are exact, and so are statistics of class-adjusted rows."""
    covered: dict[bool, set[str]] = {}
    for label in (False, True):
        content = settings(whole, "error", harmonize={"kind": "scale", "keep": ["age", *["label"] * label]})
        folder = tiny_run(tmp_path / f"{label}", **content, privacy={"noise": NOISE})
        up = [
            entry for entry in json.loads((folder / "ledger.json").read_text()) if entry["direction"] == "up"
        ]
        covered[label] = {entry["kind"] for entry in up if entry["protection"]}
        exact = {entry["kind"] for entry in up if not entry["protection"] and not entry["public"]}
        assert {"Products", "Dispersion"} <= (exact if label else covered[label])
        stated = json.loads((folder / "privacy.json").read_text())
        assert (stated["epsilon"] is None) == label
        assert any("Products" in reason for reason in stated["infinite"]) == label
    # Means are sent before the rows depend on classes, distances after.
    assert "Moment" in covered[True]
    assert "AnchorDistances" in covered[False] - covered[True]


@pytest.mark.parametrize("strict", [True, "sums"])
def test_strict_run_cannot_keep_the_label(tmp_path: Path, whole: Path, strict: bool | str) -> None:
    content = settings(whole, "error", harmonize={"kind": "center", "keep": ["label"]}, features=["age"])
    with pytest.raises(ScenarioError, match="Leave the label out of keep"):
        tiny_run(tmp_path / "run", **content, privacy={"noise": NOISE, "strict": strict})


def test_client_part_reads_classes_only_if_declared() -> None:
    """An undeclared read would be recorded as covered by noise on records."""
    rows = np.random.default_rng(0).normal(size=(6, 2))
    federation = federate([rows[:3], rows[3:]], classes=(np.array([0, 1, 0]), np.array([1, 1, 0])))
    for covariates in (Covariates((), 2), Covariates((0,), 0)):
        reported = ProductsRequest(covariates, *np.zeros((2, 2)), *np.zeros((2, covariates.count)))
        assert reported.reads_classes == (covariates.classes > 0)
        host = federation._exchange.transport.hosts[0]  # type: ignore[attr-defined]
        host.ask(Call(request=reported, number=9, round=0, attempt=0, clients=(0,), in_rounds=False))
        assert (host._clients[0].classes is not None) == reported.reads_classes


def test_audit_repeats_a_harmonized_run(tmp_path: Path, table: Path) -> None:
    content = settings(table, harmonize={"kind": "combat", "keep": ["label"]})
    folder = tiny_run(tmp_path / "run", **content)
    assert status(["audit", str(folder), "--quiet", "--attack", "trilateration"]) == 0


def test_bounds_are_computed_for_a_harmonized_run(tmp_path: Path, table: Path) -> None:
    content = settings(table, harmonize="combat") | {"method": tiny()["method"]}
    folder = tiny_run(tmp_path / "run", **content)
    out = tmp_path / "bounds.json"
    assert status(["bounds", str(folder), "--json", str(out)]) == 0
    assert json.loads(out.read_text())


@pytest.mark.parametrize("kind", KINDS)
def test_joining_site_measures_itself(tmp_path: Path, table: Path, kind: Kind) -> None:
    """Its rows are adjusted to the others, and its offset stays at the site."""
    lines = table.read_text().splitlines()
    others = [line for line in lines[1:] if not line.startswith("west")]
    (tmp_path / "two.csv").write_text("\n".join([lines[0], *others]) + "\n")
    content = settings(tmp_path / "two.csv", harmonize=kind) | {
        "method": {"kind": "fed-tsne", "landmarks": 8, "rounds": 2, "early_iterations": 5, "iterations": 5}
    }
    folder = tiny_run(tmp_path / "run", **content)
    rows, sites = filled(table)
    west = rows[sites == 2]
    places = []
    for name, own in {"west": west, "off": west + 1_000.0}.items():
        file = tmp_path / f"{name}.csv"
        np.savetxt(
            file,
            own,
            delimiter=",",
            header=lines[0].split(",", 1)[1].rsplit(",", 1)[0],
            comments="",
            fmt="%.17g",
        )
        raydr.join(folder, file)
        joined = folder / "joined" / str(len(places) + 1)
        places.append(pq.read_table(joined / "embedding.parquet"))
        reported = json.loads((joined / "ledger.json").read_text())
        assert [entry["direction"] for entry in reported if entry["kind"] == "OwnEffect"] == [
            "simulation-only"
        ]
        assert json.loads((joined / "data.json").read_text())["harmonized"]["kind"] == kind
    if kind == "combat":
        return  # it trusts a site with the same offset in all columns more
    for axis in "xy":
        np.testing.assert_allclose(places[0][axis].to_numpy(), places[1][axis].to_numpy(), atol=1e-6)
    arrays = read_model(folder).arrays
    adjusted = west - west.mean(axis=0)
    if kind == "scale":
        adjusted *= arrays["site_deviation"] / west.std(axis=0, ddof=1)
    placing = placing_of(folder, "west")
    expected = placing.found_of(scale_rows(adjusted + arrays["site_centre"], placing.common.scaling)).places
    np.testing.assert_allclose(expected[:, 0], places[0]["x"].to_numpy(), atol=1e-9)


def test_kept_label_forbids_joining(tmp_path: Path, table: Path) -> None:
    folder = tiny_run(tmp_path / "run", **settings(table, harmonize={"kind": "center", "keep": ["label"]}))
    with pytest.raises(ScenarioError, match=r"the adjustment for the site of .* is unknown"):
        raydr.join(folder, table)


def test_estimator_harmonizes_sites(tmp_path: Path) -> None:
    from sklearn.base import clone

    FedTSNE: Any = raydr.FedTSNE
    random = np.random.default_rng(0)
    rows = random.normal(size=(90, 5)) + 5.0 * (np.arange(90) % 3)[:, None]
    sites = np.array(["north", "east", "west"])[np.arange(90) % 3]
    quick = {"landmarks": 8, "rounds": 2, "early_iterations": 5, "iterations": 5}
    estimator = FedTSNE(**quick, harmonize="combat", metrics=["site_mixing"])
    estimator = clone(estimator).fit(rows, sites=sites)
    found = estimator.result_.data["harmonized"]
    assert found["before"]["site_mixing"] < 0.5 < found["after"]["site_mixing"]
    places = estimator.transform(rows, sites=sites)
    assert np.array_equal(
        places[sites == "east"], estimator.transform(rows[sites == "east"], sites=sites[sites == "east"])
    )
    with pytest.raises(DataError, match="does not name the site of its rows"):
        estimator.transform(rows)
    tables = [rows[sites == name] for name in ("north", "east", "west")]
    listed = FedTSNE(**quick, harmonize={"kind": "center"}).fit(tables)
    assert listed.transform(tables).shape == (90, 2)
    with pytest.raises(ScenarioError, match=r"that\W+are not sites"):
        FedTSNE(**quick, harmonize="center").fit(rows)
