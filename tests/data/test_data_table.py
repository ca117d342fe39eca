"""Names and ids of .npz arrays, subsamples that keep them, and consistency checks of `Table`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raydr.data import Table, load
from raydr.errors import DataError


class TestNumpyArchives:
    def test_npz_names_and_defaults(self, tmp_path: Path) -> None:
        path = tmp_path / "x.npz"
        np.savez(
            path,
            X=np.eye(3),
            y=np.array([1, 0, 1]),
            class_names=np.array(["no", "yes"]),
            ward=np.array([0, 0, 2]),
            ward_names=np.array(["a", "b", "c"]),
            key=np.array(["k1", "k2", "k3"]),
            edges=np.zeros((4, 2)),
        )
        table = load(path=path, client="ward", id_column="key")
        assert table.label_names == ("no", "yes")
        assert table.labels is not None
        assert table.labels.tolist() == [1, 0, 1]
        assert table.client_names == ("a", "b", "c")
        assert table.ids.tolist() == ["k1", "k2", "k3"]
        assert table.features == ("x0", "x1", "x2")
        picked = load(path=path, features=["x2", "x0"], label="ward")
        np.testing.assert_array_equal(picked.rows, np.eye(3)[:, [2, 0]])
        assert picked.rows.flags.c_contiguous

    def test_label_names_that_do_not_cover_the_codes_are_ignored(self, tmp_path: Path) -> None:
        np.savez(tmp_path / "x.npz", X=np.eye(3), y=np.array([1, 2, 1]), class_names=np.array(["no", "yes"]))
        assert load(path=tmp_path / "x.npz").label_names == ("1", "2")

    @pytest.mark.parametrize(
        ("ids", "read"),
        [
            (np.array([3.0, 1.0]), [3, 1]),
            (np.array([0.5, 1.0]), ["0.5", "1"]),
            (np.array([2.0**60, 1.0]), [str(2**60), "1"]),
            (np.array([2**64 - 1, 1], dtype=np.uint64), [str(2**64 - 1), "1"]),
            (np.array([7, 2], dtype=np.int8), [7, 2]),
            (np.array([b"p", b"q"]), ["p", "q"]),
        ],
    )
    def test_ids_are_int64_if_exact(self, tmp_path: Path, ids: np.ndarray[Any, Any], read: list[Any]) -> None:
        np.savez(tmp_path / "x.npz", X=np.eye(2), key=ids)
        assert load(path=tmp_path / "x.npz", id_column="key").ids.tolist() == read


class TestSubSample:
    def test_subsample_is_seeded_and_keeps_order_and_ids(self, tmp_path: Path) -> None:
        np.savez(tmp_path / "x.npz", X=np.arange(50.0)[:, None] ** 2, key=np.arange(50) + 100)
        first, again, other = (
            load(path=tmp_path / "x.npz", id_column="key", rows=20, seed=seed) for seed in (3, 3, 4)
        )
        np.testing.assert_array_equal(first.ids, again.ids)
        assert not np.array_equal(first.ids, other.ids)
        assert (np.diff(first.ids) > 0).all()
        np.testing.assert_array_equal(first.rows[:, 0], (first.ids - 100) ** 2.0)

    @given(
        classes=st.lists(st.integers(1, 30), min_size=1, max_size=6),
        share=st.floats(0, 1),
        seed=st.integers(0, 2**40),
    )
    @settings(max_examples=60)
    def test_every_class_keeps_its_share_to_within_a_row(
        self, tmp_path_factory: pytest.TempPathFactory, classes: list[int], share: float, seed: int
    ) -> None:
        labels = np.repeat(np.arange(len(classes)), classes)
        total = len(labels) + 2
        labels = np.random.default_rng(seed).permutation(np.concatenate([labels, [0, 0]]))
        wanted = 2 + round(share * (total - 2))
        path = tmp_path_factory.getbasetemp() / "stratified.npz"
        np.savez(path, X=np.arange(total)[:, None], y=labels)
        table = load(path=path, rows=wanted, seed=seed)
        assert table.labels is not None
        assert len(table.rows) == wanted
        np.testing.assert_array_equal(table.labels, labels[table.ids])
        assert (np.diff(table.ids) > 0).all()
        expected = np.bincount(labels) * wanted / total
        assert (np.abs(np.bincount(table.labels, minlength=len(classes)) - expected) < 1).all()

    def test_classes_of_one_row_are_sampled_at_random(self, tmp_path: Path) -> None:
        np.savez(tmp_path / "x.npz", X=np.arange(200)[:, None], y=np.arange(200))
        assert load(path=tmp_path / "x.npz", rows=100).ids.max() > 110

    def test_label_names_survive_a_subsample(self, tmp_path: Path) -> None:
        np.savez(tmp_path / "x.npz", X=np.arange(100)[:, None], y=np.r_[np.zeros(99), 1])
        assert load(path=tmp_path / "x.npz", rows=10).label_names == ("0", "1")

    def test_too_many_and_too_few(self, tmp_path: Path) -> None:
        path = tmp_path / "x.npz"
        np.savez(path, X=np.array([[1], [np.nan], [3], [4]]))
        with pytest.raises(DataError, match=r"data\.rows is 4, but x\.npz has 3 rows after 1 rows"):
            load(path=path, rows=4, missing="drop")
        with pytest.raises(DataError, match=r"data\.rows is 1"):
            load(path=path, rows=1, missing="drop")
        assert load(path=path, rows=3, missing="drop").ids.tolist() == [0, 2, 3]

    def test_negative_seed(self) -> None:
        with pytest.raises(DataError, match="seed is -1"):
            load(source="iris", rows=2, seed=-1)


class TestTable:
    def table(self, **changes: Any) -> Table:
        fields = {"name": "t", "rows": np.eye(3), "features": ("a", "b", "c"), "ids": np.arange(3)}
        return Table(**{**fields, **changes})

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"rows": np.arange(9).reshape(3, 3)}, "float32 or float64"),
            ({"rows": np.zeros(3)}, "shape (3,)"),
            ({"rows": np.asfortranarray(np.ones((3, 3)))}, "C-contiguous"),
            ({"rows": np.full((3, 3), np.nan)}, "missing or infinite"),
            ({"features": ("a", "b")}, "3 columns"),
            ({"features": ("a", "b", "b")}, "2 of them distinct"),
            ({"ids": np.arange(2)}, "ids must be"),
            ({"ids": np.zeros(3, dtype=np.int64)}, "not distinct"),
            ({"labels": np.zeros(3, dtype=np.int64)}, "codes from 0"),
            ({"labels": np.zeros(3), "label_names": ("x",)}, "int64"),
            ({"labels": np.full(3, -1), "label_names": ("x",)}, "-1"),
            ({"label_names": ("x",)}, "no labels"),
            ({"client_keys": np.zeros(3, dtype=np.int64), "client_names": ("x", "x")}, "not distinct"),
        ],
    )
    def test_disagreeing_parts_are_refused(self, changes: dict[str, Any], message: str) -> None:
        with pytest.raises(DataError, match=re.escape(message)):
            self.table(**changes)

    def test_take_keeps_rows_and_keys_together(self) -> None:
        table = self.table(labels=np.array([0, 1, 1]), label_names=("x", "y"), ids=np.array(["p", "q", "r"]))
        taken = table.take(np.array([2, 0]))
        np.testing.assert_array_equal(taken.rows, np.eye(3)[[2, 0]])
        assert taken.ids.tolist() == ["r", "p"]
        assert taken.labels is not None
        assert taken.labels.tolist() == [1, 0]
        assert taken.client_keys is None
