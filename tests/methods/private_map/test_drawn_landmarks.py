"""Drawn landmarks: where they are used, their distribution, and that they cost nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from inline_federations import federate
from sklearn.datasets import load_digits

from raydr.federation import Federation
from raydr.methods import METHODS, Outcome
from raydr.methods.private_map.drawn import drawn_landmarks, draws_around
from raydr.methods.private_map.frame import FrameAxes
from raydr.methods.private_map.messages import Frame, View
from raydr.methods.private_map.placing import own_rows
from raydr.methods.private_map.server import PrivateMap
from raydr.methods.private_map.settings import NoiseShares
from raydr.privacy.accounting import Budget

QUICK: dict[str, Any] = {"early_iterations": 10, "iterations": 10, "placing_iterations": 5}
ROWS = np.asarray(load_digits().data[:400])
PARTS = np.array_split(ROWS, 5)


def settings_of(**more: Any) -> PrivateMap:
    return PrivateMap(**{"epsilon": 1.0, "bounds": (0.0, 16.0), **QUICK, **more})


def served(federation: Federation, method: PrivateMap) -> Outcome:
    return METHODS["private-map"].serve(federation, method)


@pytest.mark.parametrize(
    ("cells", "rows", "clients", "chosen", "drawn"),
    [
        (39, 1999, 10, None, 1000),
        (12, 920, 10, None, 920),
        (40, 1999, 10, None, 0),  # cells enough
        (12, 2000, 10, None, 0),  # clients of 200 rows have close neighbours of their own
        (12, 920, 10, 12, 0),  # the settings name a number of cells
        (834, 60_000, 10, None, 0),
    ],
)
def test_public_numbers_decide(cells: int, rows: int, clients: int, chosen: int | None, drawn: int) -> None:
    assert drawn_landmarks(settings_of(cells=chosen), cells, rows, clients) == drawn


def test_draws_have_the_moments_of_the_mixture() -> None:
    random = np.random.default_rng(0)
    basis = np.linalg.qr(random.standard_normal((6, 2)))[0]
    frame = Frame(View(0.0, 9.0, None, None, 6), random.standard_normal(6), basis)
    centres, counts = np.array([[2.0, 0.0], [-1.0, 0.5], [0.0, -1.0]]), np.array([10.0, 30.0, 20.0])
    axes = FrameAxes(frame, np.array([4.0, 1.0]), 7.0)
    whole, landmarks, numbers = draws_around(axes, centres, counts, 100_000, np.random.default_rng(1))
    np.testing.assert_allclose(whole.axes.T @ whole.axes, np.eye(6), atol=1e-12)
    np.testing.assert_array_equal(whole.axes[:, :2], basis)
    assert numbers.sum() == pytest.approx(60.0)
    part = counts / 60.0
    mean = part @ centres
    between = (centres - mean).T @ np.diag(part) @ (centres - mean)
    within = np.diag(axes.variances) - between
    wanted = np.zeros((6, 6))
    wanted[:2, :2] = between + 0.2 * within
    wanted[2:, 2:] = 0.2 * np.eye(4) * (7.0 - 5.0) / 4.0
    np.testing.assert_allclose(landmarks.mean(axis=0), [*mean, 0, 0, 0, 0], atol=0.02)
    np.testing.assert_allclose(np.cov(landmarks.T), wanted, atol=0.03)


def test_cells_apart_by_more_than_all_variance_still_have_draws() -> None:
    """Noise may make the variance between cells exceed the whole."""
    frame = Frame(View(0.0, 9.0, None, None, 2), np.zeros(2), np.eye(2))
    axes = FrameAxes(frame, np.array([1.0, 1.0]), 1.0)
    centres = np.array([[5.0, 0.0], [-5.0, 0.0]])
    _, landmarks, _ = draws_around(axes, centres, np.ones(2), 50, np.random.default_rng(0))
    assert np.isfinite(landmarks).all()
    assert 0.0 < np.abs(np.abs(landmarks[:, 0]) - 5.0).max() < 1.0


def test_draws_cost_nothing() -> None:
    """A run with drawn landmarks has the messages and charges of one with its cells as landmarks."""
    budget = NoiseShares.of(settings_of(), Budget(), len(PARTS))
    cells = budget.cells(settings_of(), len(ROWS))[-1]
    with_draws, without = federate(PARTS), federate(PARTS)
    drawn = served(with_draws, settings_of())
    plain = served(without, settings_of(cells=cells))
    assert len(drawn.model["counts"]) == len(ROWS)
    assert len(plain.model["counts"]) <= cells
    assert with_draws.ledger.charges == without.ledger.charges
    up = [
        sorted((entry.kind, entry.bytes) for entry in ledger.entries.values() if entry.direction == "up")
        for ledger in (with_draws.ledger, without.ledger)
    ]
    assert up[0] == up[1]


def test_drawn_landmarks_are_no_records_and_place_new_rows() -> None:
    method = settings_of(density=0.1)
    outcome = served(federate(PARTS), method)
    model = outcome.model
    assert model["cells"].item() < 40
    assert f"drawn from a mixture of {model['cells'].item()} noisy cells" in outcome.notes[0].text
    seen = Frame(View(8.0, method.reach(64), None, None, 64), model["mean"], model["axes"])
    apart = np.linalg.norm(seen.coordinates(ROWS)[:, None] - np.asarray(model["centres"]), axis=-1)
    assert apart.min() > 1.0  # grey values are whole numbers
    places = method.transform(model, ROWS[:7])
    np.testing.assert_array_equal(places[:3], method.transform(model, ROWS[:3]))
    again = method.redraw_layout(model, PARTS, seed=0)
    np.testing.assert_array_equal(again, outcome.embedding)


def test_small_clients_have_neighbours_among_drawn_landmarks() -> None:
    assert own_rows(ROWS[:80], 0.4) is None
    assert own_rows(ROWS[:19], 0.4, drawn=True) is None
    found = own_rows(ROWS[:80], 0.4, drawn=True)
    assert found is not None
    assert found.nearest.shape == (80, 4)


def test_packing_changes_no_bit_of_drawn_landmarks() -> None:
    first, other = (served(federate(PARTS, packing=packing), settings_of()) for packing in ([5], [2, 3]))
    assert first.embedding.tobytes() == other.embedding.tobytes()
    assert all(np.array_equal(other.model[name], value) for name, value in first.model.items())
