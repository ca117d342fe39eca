"""Novelty of new rows: p-values that hold for rows drawn like the mapped ones, and are small for others."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from placed import CASES, folder_of, irises
from scipy.spatial.distance import cdist

import raydr
from raydr.arrays import Float64Array, FloatArray
from raydr.errors import DataError, ScenarioError
from raydr.front.cli import status
from raydr.geometry.prototypes import groups
from raydr.methods.novelty import EACH, MOMENTS, NOVEL, SCORED, SCORES, calibration, compared, p_values
from raydr.methods.references import novelty_by_rows, public_calibration
from raydr.runfolder.model import read_model
from raydr.scenarios.afterwards.transforming import place, placing_of
from raydr.scenarios.afterwards.unlike import Unlike

ABLE = {
    "fed-tsne",
    "fed-tsne, learnt landmarks",
    "fed-tsne, keyed",
    "fed-umap",
    "fed-spectral",
    "fed-spectral, umap",
    "sense",
    "sense, pointwise",
    "sense, phate",
    "sense, cne",
    "fedne",
    "fedavg-ne",
    "fedprox-ne",
    "global-ne",
    "landmark-ne",
    "fed-pca",
    "dsne",
}
"""Cases whose runs keep what new rows are compared with: Euclidean, without noise, the same anchors for all."""
FEW = {"dsne"}
"""Cases with fewer than 99 rows to compare with, here 30 public ones."""


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


def blobs(rows: int, features: int = 6, seed: int = 0) -> Float64Array:
    random = np.random.default_rng(seed)
    centres = 6.0 * np.random.default_rng(99).normal(size=(5, features))
    return centres[random.integers(0, 5, rows)] + random.normal(size=(rows, features))


def left_out(
    places: Float64Array, rows: Float64Array, heights: Float64Array, parts: list[Any]
) -> Float64Array:
    """Return the distance of each row to the nearest mean of groups of the rows outside its part, falling."""
    scores = []
    for part in parts:
        others = [row for row in range(len(rows)) if row not in part]
        means = [rows[others][group].mean(axis=0) for group in groups(places[others], 5, most=True)]
        scores += [
            np.sqrt(min(((rows[row] - mean) ** 2).sum() for mean in means) + heights[row]) for row in part
        ]
    return np.sort(scores)[::-1]


def parts_of(rows: int) -> list[Any]:
    order = np.random.default_rng(rows).permutation(rows)[:2000]
    return np.array_split(order, min(10, int(np.ceil(10 * len(order) / rows))))


@pytest.mark.parametrize("rows", [83, 2600, 41_000])
def test_mapped_rows_are_scored_by_means_of_the_others(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """In ten parts, or fewer if 2,000 scored rows are few among all."""
    table, heights = 1e3 + blobs(rows), np.random.default_rng(1).uniform(size=rows)
    kept = calibration(table[:, :2], table, heights, lambda chart: chart[:, ::-1])
    parts = parts_of(rows)
    assert len(parts) == {83: 10, 2600: 8, 41_000: 1}[rows]
    assert kept[SCORED].tolist() == [min(rows, 2000)]
    assert len(kept[SCORES]) == min(rows, 2000) // 5
    if rows == 83:
        expected = left_out(table[:, :2], table, heights, parts)
        np.testing.assert_allclose(kept[SCORES], expected[4::5])
    scored = np.concatenate(parts)
    np.testing.assert_allclose(
        kept[MOMENTS], [table[scored, ::-1].mean(axis=0), table[scored, ::-1].std(axis=0)], rtol=1e-12
    )


def test_columns_are_not_compared_if_coordinates_leave_much_out() -> None:
    """Then the deviations of the columns are unknown."""
    table = blobs(100)
    for share, known in ((0.009, True), (0.011, False)):
        heights = np.full(100, share * table.var(axis=0).sum())
        kept = calibration(table[:, :2], table, heights, lambda chart: chart)
        assert (MOMENTS in kept) == known


def test_rows_are_lifted_in_blocks() -> None:
    """2,000 rows of 20,000 columns would take 320 MB at once."""
    lifted: list[int] = []

    def lift(chart: Float64Array) -> Float64Array:
        lifted.append(len(chart))
        return 1e8 + np.tile(chart, (1, 3000))

    rows = blobs(300, features=2)
    kept = calibration(rows, rows, np.zeros(300), lift)
    assert max(lifted) < 200
    np.testing.assert_allclose(kept[MOMENTS][1], np.tile(rows.std(axis=0), 3000), rtol=1e-6)


def test_fewer_than_20_rows_are_not_compared() -> None:
    assert calibration(blobs(19)[:, :2], blobs(19), np.zeros(19), lambda chart: chart) == {}
    assert calibration(blobs(20)[:, :2], blobs(20), np.zeros(20), lambda chart: chart)[SCORED].tolist() == [
        20
    ]


@pytest.mark.parametrize("count", [20, 98, 99, 304])
def test_p_value_counts_the_mapped_rows_that_are_as_far(count: int) -> None:
    """It is never below the exact one, and above it by fewer than five rows."""
    rows, new = blobs(count), np.concatenate([blobs(400, seed=7), blobs(20, seed=8) + 30.0])
    found = groups(rows, 5, most=True)
    means = np.stack([rows[group].mean(axis=0) for group in found])
    model = calibration(rows, rows, np.zeros(count), lambda chart: chart) | {"references": means}
    p = p_values(model, lambda block: cdist(block, means) ** 2, new)
    assert p is not None
    scores = left_out(rows, rows, np.zeros(count), parts_of(count))
    farther = scores[None] >= cdist(new, means).min(axis=1)[:, None]
    exact = (1 + farther.sum(axis=1)) / (1 + count)
    assert (p >= exact - 1e-12).all()
    assert (
        p[exact < 1.0 - EACH / (1 + count)] <= exact[exact < 1.0 - EACH / (1 + count)] + EACH / (1 + count)
    ).all()
    assert p[-20:] == pytest.approx(EACH / (1 + count))
    assert (p.min() <= NOVEL) == (count >= 99)


def test_equal_distances_count_as_far_and_rounding_is_no_distance() -> None:
    """Fifteen mapped rows, of which the model keeps the fifth, tenth and last; the references' spread is 1."""
    model = {
        SCORES: np.array([3.0, 2.0, 0.0]),
        SCORED: np.array([15]),
        "references": np.array([[-1.0], [1.0]]),
    }
    distances = np.array([[0.5e-4], [2e-4], [1.9], [2.0], [2.1], [3.0], [3.1], [np.inf]])
    found = p_values(model, lambda block: block**2 + [0.0, 100.0], distances)
    assert found is not None
    np.testing.assert_allclose(16.0 * found, [16, 15, 15, 15, 10, 10, 5, 5])


def test_public_rows_are_compared_with_each_other() -> None:
    """Each by its distance to the nearest other one; new rows drawn like them are as far from the nearest."""
    public, shares = blobs(120), []
    model = {"references": public, **public_calibration(public)}
    apart = cdist(public, public) + np.diag(np.full(120, np.inf))
    np.testing.assert_allclose(model[SCORES], np.sort(apart.min(axis=1))[::-1][4::5], rtol=1e-6)
    np.testing.assert_allclose(model[MOMENTS], [public.mean(axis=0), public.std(axis=0)])
    for seed in range(20):
        public = blobs(199, seed=seed)
        p = novelty_by_rows({"references": public, **public_calibration(public)}, blobs(500, seed=100 + seed))
        assert p is not None
        shares.append((p <= NOVEL).mean())
    assert 0.035 < np.mean(shares) < 0.055
    assert public_calibration(blobs(19)) == {}


def test_damaged_arrays_are_refused() -> None:
    rows = blobs(40)
    model = calibration(rows, rows, np.zeros(40), lambda chart: chart) | {"references": rows[:8]}
    assert compared(model) is not None
    assert compared({"references": rows[:8]}) is None
    for name in (SCORES, SCORED):
        with pytest.raises(KeyError):
            compared({key: values for key, values in model.items() if key != name})
    for name in (SCORES, SCORED, MOMENTS):
        with pytest.raises(ValueError, match="must have"):
            compared(model | {name: model[name][:, 1:] if name == MOMENTS else model[name][1:]})
    with pytest.raises(ValueError, match="falling"):
        compared(model | {SCORES: model[SCORES][::-1]})


@pytest.mark.parametrize("case", CASES)
def test_runs_tell_how_novel_rows_are(case: str, root: Path) -> None:
    """The p-value of a row is that of the row alone, small for rows far away, and seldom small for mapped rows."""
    folder, table = folder_of(case, root), irises()
    found = place(folder, table).novelty
    assert (found is not None) == (case in ABLE)
    if found is None:
        return
    assert ((found > 0.0) & (found <= 1.0)).all()
    assert (found <= NOVEL).mean() <= 0.06
    alone = place(folder, table.take(np.array([60]))).novelty
    assert alone is not None
    assert alone[0] == found[60]
    far = table.take(np.arange(20))
    far = type(far)(**{**vars(far), "rows": 10.0 * far.rows})
    assert (place(folder, far).novelty <= (5 / 31 if case in FEW else NOVEL)).all()  # type: ignore[operator]


@pytest.fixture(scope="module")
def patients() -> FloatArray:
    """Rows of weight in kilograms, height in metres and a value without meaning."""
    random = np.random.default_rng(3)
    height = random.normal(1.7, 0.1, 900)
    weight = 24.0 * height**2 * np.exp(0.15 * random.normal(size=900))
    return np.column_stack([weight, height, random.normal(size=900)])


@pytest.mark.parametrize(
    "settings",
    [
        {"kind": "fed-umap", "epochs": 30},
        {"kind": "fed-tsne", "early_iterations": 20, "iterations": 30},
        {"kind": "fed-spectral", "clusters": 3},
        {"kind": "sense", "anchor_source": "random", "embedder": "umap"},
        {"kind": "landmark-ne", "rounds": 2},
        {"kind": "fedne", "rounds": 2},
        {"kind": "fed-pca"},
    ],
    ids=lambda settings: str(settings["kind"]),
)
def test_false_alarms_are_five_in_a_hundred(
    settings: dict[str, Any],
    patients: FloatArray,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Rows drawn like the mapped rows; the same in pounds, which is told as such; and a site that joins with them."""
    sites = np.arange(600) % 3
    write(tmp_path / "mapped.csv", patients[:600], sites)
    write(tmp_path / "alike.csv", patients[600:])
    write(tmp_path / "pounds.csv", patients[600:] * [2.2046, 1.0, 1.0])
    run = raydr.run(
        {
            "name": "patients",
            "data": {"path": str(tmp_path / "mapped.csv"), "scale": "standard"},
            "clients": {"partition": {"kind": "by-column", "column": "site"}},
            "method": settings,
            "metrics": [],
            "compare": [],
            "runtime": {"federation": "inline"},
        },
        out=tmp_path / "run",
    ).folder
    out = tmp_path / "placed.parquet"
    capsys.readouterr()
    assert status(["transform", str(run), str(tmp_path / "alike.csv"), "--out", str(out)]) == 0
    table = pq.read_table(out)
    novelty = table["novelty"].to_numpy()
    assert table.column_names[-1] == "novelty"
    assert 0.01 <= (novelty <= NOVEL).mean() <= 0.09  # 300 rows: three standard errors are 0.045
    assert abs(np.median(novelty) - 0.5) < 0.12
    told = capsys.readouterr().err
    count = int((novelty <= NOVEL).sum())
    assert f"{count} of 300 rows are novel (p at most 0.05). About 15 would be by chance.\n" in told
    assert status(["transform", str(run), str(tmp_path / "pounds.csv"), "--out", str(out)]) == 0
    novel = int((pq.read_table(out)["novelty"].to_numpy() <= NOVEL).sum())
    told = capsys.readouterr().err
    assert novel > 200
    assert (
        f"pounds.csv: {novel} of 300 rows are novel (p at most 0.05), where about 15 would be by chance"
        in told
    )
    known = settings["kind"] != "sense"  # whose two anchors do not show all three columns
    assert (
        bool(
            re.search(r"Column 'weight' has 2\.[0-4]\d* times the values .*\. Is it in another unit\?", told)
        )
        == known
    )
    assert "'height'" not in told
    caplog.clear()
    joined = raydr.join(run, tmp_path / "pounds.csv", site="south").joined[-1]
    assert caplog.messages[-1].startswith("south: ")
    assert joined.novelty is not None
    assert abs((joined.novelty <= NOVEL).sum() - novel) <= 5  # the server knows rows by their distances
    page = (run / "report.html").read_text()
    assert re.search(rf"{(joined.novelty <= NOVEL).sum()} of them are unlike the mapped rows", page)


def write(path: Path, rows: FloatArray, sites: Any = None) -> None:
    columns = [rows] if sites is None else [rows, sites[:, None]]
    names = ["weight", "height", "value"] + ["site"] * (sites is not None)
    np.savetxt(path, np.column_stack(columns), delimiter=",", header=",".join(names), comments="")


HALF: dict[str, dict[str, Any]] = {
    "fed-tsne": {"landmarks": 3, "early_iterations": 5, "iterations": 5},
    "fed-spectral": {"landmarks": 3, "clusters": 2},
    "sense": {"anchor_source": "random", "anchors": 3, "embedder": "umap"},
}
"""Settings under which the server knows two of six directions."""


def run_of(folder: Path, table: FloatArray, **content: Any) -> Path:
    """Return the folder of a run on a table, without a pooled-data map."""
    np.savez(folder / "mapped.npz", X=table)
    return raydr.run(
        {
            "name": "novelty",
            "data": {"path": str(folder / "mapped.npz"), **content.pop("data", {})},
            "clients": {"count": 2},
            "metrics": [],
            "compare": [],
            "runtime": {"federation": "inline"},
            **content,
        },
        out=folder / "run",
    ).folder


@pytest.mark.parametrize("kind", HALF)
def test_a_joining_site_is_as_novel_as_its_own_rows_outside_what_the_server_knows(
    kind: str, tmp_path: Path
) -> None:
    """The distance from the hull of landmarks counts, although its direction is unknown."""
    run = run_of(tmp_path, blobs(300), method={"kind": kind} | HALF[kind])
    hull = np.asarray(read_model(run).arrays["anchors" if kind == "sense" else "landmarks"])
    outside = np.linalg.svd(hull - hull.mean(axis=0))[2][-1]
    new = blobs(60, seed=5) + np.linspace(0.0, 60.0, 60)[:, None] * outside
    np.savez(tmp_path / "new.npz", X=new)
    raydr.transform(run, tmp_path / "new.npz", out=tmp_path / "out.parquet")
    own = pq.read_table(tmp_path / "out.parquet")["novelty"].to_numpy()
    joined = raydr.join(run, tmp_path / "new.npz", site="south").joined[-1].novelty
    np.testing.assert_allclose(joined, own, atol=0.02)
    assert (own[-5:] <= NOVEL).all()
    assert compared(read_model(run).arrays).moments is None  # type: ignore[union-attr]


def test_columns_that_do_not_vary_have_no_deviation(tmp_path: Path) -> None:
    """The server computes rows from distances, with rounding."""
    table = np.column_stack([blobs(120), np.zeros(120)])
    run = run_of(tmp_path, table, method={"kind": "fed-umap", "epochs": 5})
    moments = compared(read_model(run).arrays).moments  # type: ignore[union-attr]
    assert moments[:, -1].tolist() == [0.0, 0.0]  # type: ignore[index]


@pytest.mark.parametrize("data", [{"metric": "cosine"}, {}])
def test_columns_are_compared_in_their_own_units_only(data: dict[str, Any], tmp_path: Path) -> None:
    run = run_of(tmp_path, blobs(120) + 9.0, data=data, method={"kind": "fed-umap", "epochs": 5})
    unlike = placing_of(run, "new.csv").unlike()
    assert unlike is not None
    assert len(unlike.columns) == (0 if data else 6)


@pytest.mark.parametrize("why", ["noise on records", "kernels of 0"])
def test_spectral_runs_that_cannot_tell(why: str, tmp_path: Path) -> None:
    noise = {"privacy": {"noise": {"on": "data", "level": 0.1}}} if why == "noise on records" else {}
    far = blobs(120) if noise else np.concatenate([blobs(60), 1e4 + blobs(60)])
    method = {"kind": "fed-spectral", "clusters": 2, "gamma": 0.5}
    run = run_of(tmp_path, far, method=method, **noise)
    assert not {SCORES, SCORED, MOMENTS} & set(read_model(run).arrays)


def test_estimators_return_novelty_on_request(patients: FloatArray) -> None:
    mapped = raydr.FedUMAP(epochs=20).fit(patients[:300], sites=np.arange(300) % 3)
    places, novelty = mapped.transform(patients[300:400], return_novelty=True)
    np.testing.assert_array_equal(places, mapped.transform(patients[300:400]))
    assert ((novelty > 0.0) & (novelty <= 1.0)).all()
    private = raydr.PrivateMap(epsilon=9.0, clip=200.0, early_iterations=5, iterations=5)
    with pytest.raises(
        ScenarioError, match="PrivateMap cannot tell how novel rows are: the noisy landmarks do"
    ):
        private.fit(patients[:300], sites=np.arange(300) % 3).transform(patients, return_novelty=True)
    paid = raydr.PrivateMap(epsilon=1e3, clip=200.0, novelty_share=0.2, early_iterations=5, iterations=5)
    placed = paid.fit(patients[:300], sites=np.arange(300) % 3)
    _, far = placed.transform(10.0 * patients[:50], return_novelty=True)
    assert (far <= 0.05).mean() > 0.9


def test_a_label_that_steers_leaves_nothing_to_compare_with(patients: FloatArray, tmp_path: Path) -> None:
    """References of steered maps hold labels, which new rows do not have."""
    np.savez(tmp_path / "a.npz", X=patients[:200], y=(patients[:200, 0] > 70.0).astype(int))
    run = raydr.run(
        {
            "name": "steered",
            "data": {"path": str(tmp_path / "a.npz"), "label": "y", "target_weight": 0.5},
            "clients": {"count": 2},
            "method": {"kind": "fed-umap", "epochs": 10},
            "metrics": [],
            "runtime": {"federation": "inline"},
        },
        out=tmp_path / "run",
    )
    assert not {SCORES, SCORED, MOMENTS} & set(read_model(run.folder).arrays)


class TestUnlike:
    def unlike(self, mean: Any, deviation: Any, scored: int = 2000) -> Unlike:
        names = [f"c{number}" for number in range(len(mean))]
        return Unlike(names, scored, np.asarray(mean, float), np.asarray(deviation, float))

    @pytest.mark.parametrize(
        ("rows", "scored", "most"),
        [(1, 2000, 1), (2, 2000, 2), (1000, 2000, 79), (1000, 99, 146), (50, 98, 50)],
    )
    def test_a_warning_takes_more_novel_rows_than_chance(self, rows: int, scored: int, most: int) -> None:
        for novel in {most, most + 1} & set(range(rows + 1)):
            unlike = self.unlike([], [], scored)
            unlike.add(np.zeros((rows, 0)), np.where(np.arange(rows) < novel, 0.05, 0.06))
            assert (unlike.novel, unlike.unlike) == (novel, novel > most)

    def test_one_table_in_a_thousand_is_warned_of(self) -> None:
        """By simulation: new and scored rows are ranked together."""
        random = np.random.default_rng(0)
        scores, new = np.sort(random.random((40_000, 99)), axis=1), random.random((40_000, 50))
        novel = (new > scores[:, [-5]]).sum(axis=1)
        warned = [count for count in range(51) if self.of(50, count).unlike]
        assert 2e-4 < np.isin(novel, warned).mean() < 1.2e-3  # counts are whole

    def of(self, rows: int, novel: int) -> Unlike:
        unlike = self.unlike([], [], 99)
        unlike.add(np.zeros((rows, 0)), np.where(np.arange(rows) < novel, 0.05, 0.06))
        return unlike

    def test_blocks_add_up_and_the_most_different_columns_are_named(self) -> None:
        random = np.random.default_rng(0)
        unlike = self.unlike([1e6, 5.0, 0.0, 2.0, 0.0], [1.0, 1.0, 1.0, 0.0, 1.0])
        rows = np.array([1e6 + 4.0, 5.0, 0.0, 2.0, 0.0]) + random.normal(size=(400, 5))
        rows[:, 2] *= 5.0
        rows[:, 3] = 2.0
        for block in (rows[:150], rows[150:]):
            unlike.add(block, np.full(len(block), 0.01))
        first, second = unlike.differing
        assert first.startswith("Column 'c2' has a mean of")
        assert f"a standard deviation of {rows[:, 2].std():.3g}. The mapped rows have 0 and 1." in first
        assert second.startswith(f"Column 'c0' has a mean of {rows[:, 0].mean():.2f} and")
        assert second.endswith(" The mapped rows have 1000000 and 1.")
        assert "too few" not in unlike.sentence

    def test_few_rows_and_rows_as_usual_name_no_column(self) -> None:
        few = self.unlike([0.0], [1.0])
        few.add(np.full((9, 1), 50.0), np.full(9, 0.01))
        usual = self.unlike([0.0], [1.0])
        usual.add(np.full((90, 1), 50.0), np.full(90, 0.5))
        assert (few.differing, usual.differing) == ((), ())

    @pytest.mark.parametrize(
        ("factor", "told"), [(1 / 38.67, True), (6.0, True), (4.0, False), (1 / 4.0, False)]
    )
    def test_a_large_factor_is_told_although_no_row_is_novel(self, factor: float, told: bool) -> None:
        """As cholesterol in mmol/l, of which many values are missing, in a column that spreads widely anyway."""
        random = np.random.default_rng(0)
        usual = self.unlike([199.0, 5.0], [109.0, 1.0])
        rows = [199.0, 5.0] + [109.0, 1.0] * random.normal(size=(500, 2))
        rows[:, 0] *= factor
        rows[:300, 0] = np.nan
        usual.add(rows, np.full(500, 0.5))
        assert [sentence.split(" has ")[0] for sentence in usual.differing] == ["Column 'c0'"] * told

    def test_a_column_that_is_seldom_not_zero_is_not_said_to_be_in_another_unit(self) -> None:
        """As a pixel at the edge of MNIST, 200 in ten of 2,000 mapped rows and 1,800 in two of 400 new ones."""
        for novel in (0.5, 0.01):
            unlike = self.unlike([1.0], [np.sqrt(199.0)])
            unlike.add(np.where(np.arange(400) < 2, 1800.0, 0.0)[:, None], np.full(400, novel))
            assert not any("another unit" in sentence for sentence in unlike.differing)

    @pytest.mark.parametrize(
        ("factors", "expected"),
        [
            ([100.0] * 5, ["All 5 columns that vary have 100 times the values"]),
            ([100.0] * 4 + [1.0], ["Columns 'c0', 'c1', 'c2' and 1 more have 100 times the values"]),
            (
                [100.0, 0.1, 100.0, 0.1, 1.0],
                [
                    "Columns 'c0', 'c2' have 100 times the values",
                    "Columns 'c1', 'c3' have 0.1 times the values",
                ],
            ),
        ],
    )
    def test_columns_with_one_factor_share_a_sentence(
        self, factors: list[float], expected: list[str]
    ) -> None:
        unlike = self.unlike([5.0] * 5 + [3.0], [1.0] * 5 + [0.0])
        rows = np.tile([[4.0], [6.0]], (50, 5)) * factors * (1.0 - 1e-6 * np.arange(5))
        unlike.add(np.column_stack([rows, np.full(100, 3.0)]), np.full(100, 0.01))
        assert len(unlike.differing) == len(expected)
        for sentence, start in zip(unlike.differing, expected, strict=True):
            assert sentence.startswith(start)
            assert sentence.endswith("of the mapped rows. Are they in another unit?")


def test_filled_in_values_do_not_hide_another_unit(patients: FloatArray, tmp_path: Path, caplog: Any) -> None:
    """Columns are compared by their known values: half of the weights are missing and become the run's median."""
    run = run_of(
        tmp_path, patients[:400], data={"missing": "median"}, method={"kind": "fed-umap", "epochs": 5}
    )
    new = patients[400:] * [100.0, 1.0, 1.0]
    new[::2, 0] = np.nan
    np.savez(tmp_path / "new.npz", X=new)
    raydr.transform(run, tmp_path / "new.npz", out=tmp_path / "out.csv")
    assert re.search(
        r"Column 'x0' has (9|10)\d\.?\d* times the values .*in another unit", caplog.messages[-1]
    )
    raydr.join(run, tmp_path / "new.npz")
    assert re.search(
        r"Column 'x0' has (9|10)\d\.?\d* times the values .*in another unit", caplog.messages[-1]
    )


def test_values_too_large_to_compute_with_stay_refused(patients: FloatArray) -> None:
    mapped = raydr.FedUMAP(epochs=5).fit(patients[:200], sites=np.arange(200) % 2)
    with pytest.raises(DataError, match="have no place on the map"):
        mapped.transform(np.full((3, 3), 1e300), return_novelty=True)
