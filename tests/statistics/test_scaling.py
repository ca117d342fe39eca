"""Federated scaling equals scikit-learn's on pooled rows for every partition."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from inline_federations import cut, federate
from requests_for_tests import HandOver

from raydr.arrays import Float64Array, FloatArray, Int64Array
from raydr.errors import DataError
from raydr.federation import (
    Client,
    ClientHost,
    Context,
    Federation,
    HostedClient,
    InlineTransport,
    fingerprint,
)
from raydr.geometry.points import value_blocks
from raydr.statistics.scaling import (
    Scale,
    ScaleRows,
    Scaling,
    fit_scaling,
    inverse,
    scale_client,
    scale_rows,
)

SCALES: tuple[Scale, ...] = ("standard", "minmax", "maxabs")
Partitioner = Callable[[FloatArray, Int64Array], list[FloatArray]]
PARTITIONS: dict[str, Partitioner] = {
    "one client": lambda rows, labels: [rows],
    "random cuts": lambda rows, labels: cut(rows, 7, 2),
    "one class per client": lambda rows, labels: [rows[labels == label] for label in np.unique(labels)],
    "pointwise": lambda rows, labels: list(rows[:, None]),
    "empty clients": lambda rows, labels: [rows[:0], rows[:9], rows[:0], rows[9:], rows[:0]],
}


def scikit_learn(scale: Scale) -> Any:
    from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, StandardScaler

    return {"standard": StandardScaler(), "minmax": MinMaxScaler(), "maxabs": MaxAbsScaler()}[scale]


@pytest.fixture(scope="module", params=["wine", "digits", "far"])
def data(request: pytest.FixtureRequest) -> tuple[Float64Array, Int64Array]:
    """Return rows and labels; digits have constant columns, and the last data set is far from zero."""
    from sklearn import datasets

    if request.param == "far":
        random = np.random.default_rng(0)
        rows = (1e6 + random.normal(size=(150, 3)) * [1.0, 1e3, 1e-3]) * [1.0, -1.0, 1.0]
        return rows, random.integers(0, 3, 150)
    bunch = getattr(datasets, f"load_{request.param}")()
    return np.asarray(bunch.data[:150], np.float64), bunch.target[:150]


def scaled_at_clients(parts: list[FloatArray], scale: Scale) -> tuple[FloatArray, FloatArray]:
    """Return the rows of the clients afterwards, and rows scaled by the server's scaling."""
    host = ClientHost(
        hosted=[HostedClient(index, rows, fingerprint(rows)) for index, rows in enumerate(parts)], seed=0
    )
    federation = Federation(InlineTransport([host]), len(parts), Context(seed=0))
    scaling = fit_scaling(federation, scale)
    request = HandOver(parts[0].shape[1], parts[0].dtype.name)
    held = np.concatenate([reply.rows for reply in federation.ask(request)])
    return held, scale_rows(np.concatenate(parts), scaling)


@pytest.mark.parametrize("partition", PARTITIONS)
@pytest.mark.parametrize("scale", SCALES)
def test_equals_scikit_learn_on_pooled_rows(
    data: tuple[Float64Array, Int64Array], scale: Scale, partition: str
) -> None:
    parts = PARTITIONS[partition](*data)
    pooled = np.concatenate(parts)
    held, expected_held = scaled_at_clients(parts, scale)
    assert np.array_equal(held, expected_held)
    # scikit-learn's own mean errs by some units in the last place of the offset.
    slack = 4 * np.finfo(np.float64).eps * np.abs(pooled).max(axis=0) / np.maximum(pooled.std(axis=0), 1e-9)
    expected = scikit_learn(scale).fit_transform(pooled)
    assert (np.abs(held - expected) <= 1e-9 + slack).all()


@pytest.mark.parametrize("scale", SCALES)
def test_float32_rows_stay_float32(scale: Scale) -> None:
    from sklearn.datasets import load_wine

    rows = load_wine().data.astype(np.float32)
    held, _ = scaled_at_clients(cut(rows, 4, 0), scale)
    assert held.dtype == np.float32
    expected = scikit_learn(scale).fit_transform(rows.astype(np.float64))
    np.testing.assert_allclose(held, expected, rtol=1e-6, atol=1e-6)


def test_scaling_none_changes_and_sends_nothing() -> None:
    parts = cut(np.random.default_rng(0).normal(size=(20, 3)), 3, 0)
    federation = federate(parts)
    before = federation.ledger.as_list()
    scaling = fit_scaling(federation, "none")
    assert federation.ledger.as_list() == before
    assert np.array_equal(scale_rows(parts[0], scaling), parts[0])


@pytest.mark.parametrize("offset", [0.0, 1e8])
def test_float32_rounding_happens_after_scaling(offset: float) -> None:
    rows = np.random.default_rng(0).normal(size=(30, 4)) + offset
    scaling = Scaling(rows.mean(axis=0), np.full(4, 0.5))
    client = Client(index=0, rows=rows, seed=0)
    scale_client(client, ScaleRows(scaling.shift, scaling.factor, single=True))
    assert client.rows.dtype == np.float32
    np.testing.assert_array_equal(client.rows, scale_rows(rows, scaling).astype(np.float32))
    nothing = Scaling(np.zeros(4), np.ones(4))
    assert scale_rows(rows, nothing, single=True).dtype == np.float32
    assert scale_rows(rows, nothing) is rows


@pytest.mark.parametrize("scale", ["standard", "minmax"])
@pytest.mark.parametrize("value", [0.0, 0.1, -1e6 / 3])
def test_constant_column_becomes_zero(scale: Scale, value: float) -> None:
    rows = np.column_stack([np.full(50, value), np.arange(50.0)])
    held, _ = scaled_at_clients(cut(rows, 4, 1), scale)
    assert not held[:, 0].any()
    assert held[:, 1].any()


@pytest.mark.parametrize("scale", ["standard", "minmax"])
def test_constant_columns_alone_are_refused(scale: Scale) -> None:
    with pytest.raises(DataError, match="Every feature is constant"):
        fit_scaling(federate([np.full((3, 2), 0.1), np.full((5, 2), 0.1)]), scale)


def test_extreme_columns_are_scaled() -> None:
    least, most = 5e-324, 8e307
    rows = np.array([[0.0, -most, 1.0], [least, most, 2.0], [0.0, 0.0, 3.0]])
    held, _ = scaled_at_clients([rows[:1], rows[1:]], "minmax")
    np.testing.assert_allclose(held, [[0.0, 0.0, 0.0], [0.0, 1.0, 0.5], [0.0, 0.5, 1.0]], rtol=1e-14)
    with pytest.raises(DataError, match=r"Feature number 1 \(the first is 0\) runs from -1\.7e"):
        fit_scaling(federate([np.array([[0.0, -1.7e308], [1.0, 1.7e308]])]), "minmax")


def test_scaling_works_across_blocks() -> None:
    rows = np.random.default_rng(1).normal(size=(9000, 2))
    held, _ = scaled_at_clients([rows], "standard")
    np.testing.assert_allclose(held, (rows - rows.mean(axis=0)) / rows.std(axis=0), atol=1e-12)


@pytest.mark.parametrize("scale", SCALES)
def test_scaling_does_not_change_the_input_rows(scale: Scale) -> None:
    """The input rows are not changed: the evaluation needs them."""
    rows = np.random.default_rng(2).normal(size=(20, 3))
    before = rows.copy()
    scaled_at_clients([rows], scale)
    assert np.array_equal(rows, before)


@pytest.mark.parametrize("scale", SCALES)
def test_bits_do_not_depend_on_packing(scale: Scale) -> None:
    parts = cut(np.random.default_rng(3).normal(size=(40, 3)), 5, 0)
    scalings = [fit_scaling(federate(parts, packing=packing), scale) for packing in ([5], [1] * 5, [3, 2])]
    assert len({(s.shift.tobytes(), s.factor.tobytes()) for s in scalings}) == 1


def test_widths_without_an_inverse_count_as_zero() -> None:
    tiny = np.finfo(np.float64).tiny
    width = np.array([0.0, np.nextafter(tiny, 0.0), tiny, 0.5, 4.0])
    assert inverse(width).tolist() == [0.0, 0.0, 1.0 / tiny, 2.0, 0.25]


def test_shift_and_factor_can_be_applied_alone() -> None:
    rows, ones, zero = np.array([[1.0, 2.0], [0.3, 0.4]]), np.ones(2), np.zeros(2)
    np.testing.assert_array_equal(scale_rows(rows, Scaling(ones, ones)), rows - 1.0)
    np.testing.assert_array_equal(scale_rows(rows, Scaling(zero, 2.0 * ones)), 2.0 * rows)


def test_scaling_many_values_works_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = np.random.default_rng(4).normal(size=(23, 3))
    scaling = Scaling(rows.mean(axis=0), 1.0 / rows.std(axis=0))
    whole = scale_rows(rows, scaling)
    monkeypatch.setattr("raydr.geometry.points._VALUES", 15)
    np.testing.assert_array_equal(scale_rows(rows, scaling), whole)


@pytest.mark.parametrize(("rows", "columns"), [(10, 1 << 21), (3 << 20, 1), (900_000, 3)])
def test_blocks_have_a_million_values_and_at_least_one_row(rows: int, columns: int) -> None:
    blocks = value_blocks(rows, columns)
    starts, stops = zip(*blocks, strict=True)
    assert starts == (0, *stops[:-1])
    assert stops[-1] == rows
    sizes = [stop - start for start, stop in blocks]
    assert max(sizes) == max(1, 2**20 // columns)


def test_scaling_is_restored_from_its_arrays() -> None:
    arrays = {"shift": np.zeros(2), "factor": np.ones(2), "axes": np.ones((2, 2))}
    assert Scaling.of(arrays).fill is None
    kept = Scaling.of(arrays | {"fill": np.array([1.0, 2.0])})
    assert set(kept.arrays) == {"shift", "factor", "fill"}
    with pytest.raises(KeyError, match="factor"):
        Scaling.of({"shift": np.zeros(2)})
    assert ScaleRows.sets_state, "a restarted client must receive it again"
