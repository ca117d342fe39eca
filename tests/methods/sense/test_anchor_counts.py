"""What some of the anchors leave open: equal to the residuals of the records, and to a run with these anchors alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits

import raydr
from raydr.arrays import Float64Array
from raydr.geometry.points import squared_distances
from raydr.methods.sense.anchor_counts import OpenSpread, open_spread


def table(count: int) -> tuple[Float64Array, Float64Array]:
    """Return records and anchors of digits."""
    rows = np.asarray(load_digits().data, dtype=np.float64)[np.random.default_rng(0).permutation(1797)]
    return rows[:400], rows[400 : 400 + count]


def off(records: Float64Array, anchors: Float64Array) -> Float64Array:
    """What of records (records, features) is outside of the anchors' affine span."""
    arms = (anchors[1:] - anchors[0]).T
    outside = (records - anchors[0]).T
    return (outside - arms @ np.linalg.lstsq(arms, outside, rcond=None)[0]).T


def residual(records: Float64Array, some: Float64Array, anchors: Float64Array) -> float:
    outside = off(records, anchors)
    within = records - outside
    spread = ((within - within.mean(axis=0)) ** 2).sum() + (outside**2).sum()
    return float((off(records, some) ** 2).sum() / spread)


def test_each_number_leaves_the_residual_of_the_records_open() -> None:
    records, anchors = table(30)
    squared = squared_distances(records, anchors)
    found = open_spread(anchors, [squared[:100], squared[100:]])
    assert sorted(found.order.tolist()) == list(range(30))
    for count in (2, 5, 12, 30):
        expected = residual(records, anchors[found.order[:count]], anchors)
        assert found.by_count[count - 1] == pytest.approx(expected, rel=1e-6)
    assert (np.diff(found.by_count) <= 1e-12).all()


def test_a_run_with_the_chosen_anchors_alone_leaves_that_open() -> None:
    records, anchors = table(40)
    found = open_spread(anchors, [squared_distances(records, anchors)])
    count = found.anchors_for(0.2)
    assert count is not None
    assert count < 40
    chosen = anchors[found.order[:count]]
    left_open = residual(records, chosen, anchors)
    assert left_open == pytest.approx(found.by_count[count - 1], rel=1e-6)
    assert left_open <= 0.2 < found.by_count[count - 2]
    draws = (np.random.default_rng(seed).permutation(40)[:count] for seed in range(20))
    at_random = [residual(records, anchors[draw], anchors) for draw in draws]
    assert min(at_random) > left_open, "others leave more open"
    again = open_spread(chosen, [squared_distances(records, chosen)])
    assert again.by_count[-1] == pytest.approx(left_open, rel=0.02), "in units of what these anchors know"


def test_anchors_in_the_span_of_others_close_nothing() -> None:
    records, anchors = table(6)
    more = np.concatenate([anchors, anchors[:2] + 0.5 * (anchors[2:4] - anchors[4:6])])
    found = open_spread(more, [squared_distances(records, more)])
    np.testing.assert_allclose(found.by_count[5:], found.by_count[5], rtol=1e-6)
    assert found.by_count[4] > found.by_count[5] * 1.001


def test_a_run_says_how_many_of_its_anchors_leave_how_much_open() -> None:
    few = OpenSpread(np.arange(4), np.array([1.2, 0.5, 0.15, 0.012]))
    assert few.sentence == (
        "The 4 anchors leave 1.2% of the records' spread open; the best 3 of them 20%, 4 of them 10%, 4 of them 5% or"
        " less. How many more are needed for less, no message shows."
    )
    assert "the best" not in OpenSpread(np.arange(2), np.array([1.2, 0.5])).sentence


@pytest.mark.parametrize("regime", ["pointwise", "multisite"])
def test_the_report_of_a_run_has_the_sentence(tmp_path: Path, regime: str) -> None:
    """Not with noise, nor if clients see different anchors: then the server does not know it."""
    partition = {"kind": "pointwise"} if regime == "pointwise" else {"kind": "iid"}
    content = {
        "name": "counts",
        "data": {"source": "digits", "rows": 120},
        "clients": {"partition": partition} | ({} if regime == "pointwise" else {"count": 3}),
        "method": {
            "kind": "sense",
            "regime": regime,
            "anchors": 20,
            "embedder": {"kind": "tsne", "iterations": 1, "early_iterations": 1},
        },
        "runtime": {"federation": "inline"},
        "metrics": [],
        "compare": [],
    }

    def text(name: str, **changes: Any) -> str:
        result = raydr.run(content, out=tmp_path / name, **changes)
        return (result.folder / "notes.json").read_text()

    assert "The 20 anchors leave " in text("full")
    assert "anchors leave" not in text("noisy", privacy={"noise": {"on": "distances", "level": 0.1}})
    assert "of the records' spread open" not in text("partial", method__visibility="partial")
