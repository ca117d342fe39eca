"""A run with one more site, whose map starts from the earlier one: mapped rows stay near their places."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny import Wards, tiny, tiny_run

import raydr
from raydr.data import load
from raydr.errors import DataError, RaydrError, ScenarioError
from raydr.front.cli import status
from raydr.journal import unheard
from raydr.metrics.displacement import displacement
from raydr.runfolder import read_run
from raydr.scenarios.afterwards.repetition import repeated
from raydr.scenarios.runner import run
from raydr.scenarios.schema.reading import read

TSNE: dict[str, Any] = {"kind": "fed-tsne", "early_iterations": 20, "iterations": 20}
ENCODED: dict[str, Any] = {"rounds": 2, "hidden": [8], "local_epochs": 1}

pytestmark = pytest.mark.usefixtures("no_report")


def first_wards(folder: Path, **data: Any) -> tuple[dict[str, Any], Path]:
    """Write the table of two wards, and the file of the third; return the sections of the table, and the file."""
    wards = Wards.drawn()
    stay, joins = (np.flatnonzero((wards.wards == "south") == last) for last in (False, True))
    parts = [Wards(wards.ids[of], wards.wards[of], wards.labels[of], wards.rows[of]) for of in (stay, joins)]
    parts[1].written(folder / "south.csv")
    return parts[0].written(folder / "first.csv", **data), folder / "south.csv"


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    "method",
    [
        {"kind": "fed-tsne"},
        pytest.param({"kind": "fed-umap"}, marks=pytest.mark.slow),
        pytest.param({"kind": "sense"}, marks=pytest.mark.slow),
        pytest.param({"kind": "fed-spectral", "clusters": 10, "embedder": "umap"}, marks=pytest.mark.slow),
    ],
    ids=lambda method: method["kind"],
)
def test_mapped_rows_stay_near_their_places(method: dict[str, Any], tmp_path: Path) -> None:
    """They move less far than on a map without the prior, and the map is as trustworthy."""
    table = load(source="digits", rows=600)
    for name, rows in (("first", slice(500)), ("last", slice(500, None))):
        np.savez(tmp_path / f"{name}.npz", X=table.rows[rows], id=table.ids[rows])
    metrics = {"metrics": ["trustworthiness_10"]}
    data = {"path": str(tmp_path / "first.npz"), "id": "id"}
    folder = tiny_run(tmp_path / "run", method=method, data=data, **metrics)
    before, count = contents(folder), len(read_run(folder).rows)
    redrawn = raydr.redraw(folder, tmp_path / "last.npz")
    assert contents(folder) == before
    assert redrawn.folder.name == "run-with-last"
    earlier = redrawn.earlier
    assert earlier is not None
    assert (earlier.change, earlier.site, earlier.rows, earlier.prior) == ("joined", "last", 100, True)
    anew = raydr.run(str(redrawn.folder / "scenario.yaml"), prior=None, out=tmp_path / "anew")
    assert set(read_run(anew.folder).clients[count:]) == {"last"}
    moved = displacement(anew.embedding[:count].astype(float), read_run(folder).federated)
    assert moved is not None
    assert earlier.displacement is not None
    assert earlier.displacement.rows == count
    assert earlier.displacement.median < 0.9 * moved.median
    assert earlier.displacement.upper < 0.6 * moved.upper
    trust = [result.metrics["federated"]["trustworthiness_10"] for result in (redrawn, anew)]
    assert trust[0] > trust[1] - 0.01


@pytest.mark.parametrize("kind", ["fedavg-ne", "fedprox-ne", "fedne", "landmark-ne", "global-ne"])
def test_training_starts_from_the_earlier_encoder(kind: str, tmp_path: Path) -> None:
    """With hardly any learning, rows stay at their places, and without the prior they do not."""
    sections, south = first_wards(tmp_path)
    method = {"kind": kind, "rounds": 3, "hidden": [8], "learning_rate": 0.05, "standardise": False}
    method |= {"start": "random"} if kind == "fedne" else {}
    sections["data"]["scale"] = "none"
    folder = tiny_run(tmp_path / "run", method=method, **sections)
    redrawn = raydr.redraw(folder, south)
    still = read(redrawn.folder / "scenario.yaml", {"method.learning_rate": 1e-9})
    before = read_run(folder).federated
    moved = []
    for name, prior in (("prior", str(folder)), ("anew", None)):
        found = run(still.model_copy(update={"prior": prior}), out=tmp_path / name, report=False)
        moved.append(np.abs(read_run(found).federated[: len(before)] - before).max() / np.ptp(before))
    assert moved[0] < 1e-4
    assert moved[1] > 0.05


def test_files_of_joined_clients_are_like_rows_of_the_table(tmp_path: Path) -> None:
    """The map is bit-identical with that of one table with all rows, if its clients come in the same order."""
    sections, south = first_wards(tmp_path)
    sections["clients"]["joined"] = [{"path": str(south)}]
    joined = read_run(tiny_run(tmp_path / "joined", method={"kind": "fed-pca"}, **sections))
    whole = Wards.drawn().written(tmp_path / "all.csv")
    table = read_run(tiny_run(tmp_path / "table", method={"kind": "fed-pca"}, **whole))
    places = {row: place.tolist() for row, place in zip(table.rows, table.federated, strict=True)}
    assert [places[row] for row in joined.rows] == joined.federated.tolist()
    assert (dict(zip(joined.rows, joined.labels or (), strict=True))) == dict(
        zip(table.rows, table.labels or (), strict=True)
    )
    assert [source.client for source in joined.data.sources] == [None, "south"]


def test_sites_with_files_are_joined_by_another(tmp_path: Path) -> None:
    wards = Wards.drawn()
    for ward in wards.names:
        np.savez(tmp_path / f"{ward}.npz", X=wards.rows[wards.of(ward)])
    sites = [{"path": str(tmp_path / f"{ward}.npz")} for ward in ("east", "north")]
    folder = tiny_run(tmp_path / "run", method=TSNE, data={}, clients={"sites": sites})
    redrawn = raydr.redraw(folder, tmp_path / "south.npz", site="the south", out=tmp_path / "new")
    assert set(read_run(redrawn.folder).clients) == {"east", "north", "the south"}


def test_a_redrawn_map_is_redrawn_with_the_next_file(tmp_path: Path) -> None:
    """As with a file for each year: all earlier rows are compared, and the runs compose."""
    sections, south = first_wards(tmp_path)
    folder = tiny_run(tmp_path / "run", method=TSNE, **sections)
    year = raydr.redraw(folder, south, site="2023", out=tmp_path / "2023")
    lines = south.read_text().splitlines()
    (tmp_path / "next.csv").write_text("\n".join([lines[0], *(f"9{line}" for line in lines[1:])]) + "\n")
    last = raydr.redraw(year.folder, tmp_path / "next.csv", site="2024", out=tmp_path / "2024")
    assert set(read_run(last.folder).clients) == {"east", "north", "2023", "2024"}
    assert last.earlier is not None
    assert last.earlier.displacement.rows == len(year.embedding)
    assert len(last.earlier.costs) == 3
    repeated(last.folder, None, unheard)


def test_redrawn_map_repeats_bit_for_bit(tmp_path: Path) -> None:
    """An audit can repeat it; and a site can leave it again, whose run has no prior."""
    sections, south = first_wards(tmp_path)
    for method in (TSNE, {"kind": "fedavg-ne"} | ENCODED):
        folder = tiny_run(tmp_path / method["kind"], method=method, **sections)
        redrawn = raydr.redraw(folder, south)
        repeated(redrawn.folder, None, unheard)
    without = raydr.leave(redrawn.folder, "south")
    assert read_run(without.folder).scenario["prior"] is None
    assert set(read_run(without.folder).clients) == {"east", "north"}
    assert without.earlier is not None
    assert len(without.earlier.costs) == 3


@pytest.mark.parametrize(
    ("method", "text"),
    [
        ({"kind": "fed-pca"}, "'fed-pca' have no start that an earlier map could give"),
        ({"kind": "private-map", "epsilon": 2.0, "clip": 20.0}, "'private-map' have no start"),
        (
            {"kind": "sense", "anchors": 6, "embedder": "phate"},
            "'phate' starts from no places: choose tsne or umap",
        ),
    ],
)
def test_methods_that_cannot_start_from_a_map(method: dict[str, Any], text: str, tmp_path: Path) -> None:
    sections, south = first_wards(tmp_path)
    folder = tiny_run(tmp_path / "run", method=method, **sections)
    with pytest.raises(ScenarioError, match=text):
        raydr.redraw(folder, south)
    assert not list(tmp_path.glob("run-*"))


def test_sites_that_cannot_join(tmp_path: Path) -> None:
    sections, south = first_wards(tmp_path)
    folder = tiny_run(tmp_path / "run", method=TSNE, **sections)
    text = south.read_text()
    (tmp_path / "narrow.csv").write_text(
        "\n".join(line.rpartition(",")[0] for line in text.splitlines()) + "\n"
    )
    cases: list[tuple[Path, str | None, type[RaydrError], str]] = [
        (south, "north", DataError, "already has a client 'north'"),
        (tmp_path / "none.csv", None, DataError, "cannot be opened"),
        (tmp_path / "narrow.csv", None, DataError, "'d'"),
    ]
    for file, site, error, reason in cases:
        with pytest.raises(error, match=reason):
            raydr.redraw(folder, file, site=site)
    assert not list(tmp_path.glob("run-*"))


def test_site_without_labels(tmp_path: Path) -> None:
    """Its rows have a class of their own, unless labels take part in the run."""
    sections, south = first_wards(tmp_path)
    south.write_text(south.read_text().replace("diagnosis", "other"))
    sections["clients"]["joined"] = [{"path": str(south)}]
    run = read_run(tiny_run(tmp_path / "run", method={"kind": "fed-pca"}, **sections))
    assert run.labels is not None
    found = {label for label, client in zip(run.labels, run.clients, strict=True) if client == "south"}
    assert found == {"(none)"}
    sections["data"]["target_weight"] = 0.5
    with pytest.raises(DataError, match="labels take part in this run"):
        tiny_run(tmp_path / "steered", method={"kind": "fed-pca"}, **sections)


def test_site_that_was_placed_joins_by_the_same_name(tmp_path: Path) -> None:
    sections, south = first_wards(tmp_path)
    folder = tiny_run(tmp_path / "run", method=TSNE, **sections)
    raydr.join(folder, south)
    assert "south" in read_run(raydr.redraw(folder, south).folder).clients


def test_priors_that_do_not_fit(tmp_path: Path) -> None:
    sections, _ = first_wards(tmp_path)
    folder = tiny_run(tmp_path / "run", method=TSNE, **sections)
    others, _ = first_wards(tmp_path, features=["a", "b", "c"])
    encoded = {"kind": "fedavg-ne"} | ENCODED
    encoder = tiny_run(tmp_path / "encoder", method=encoded, **sections)
    cases: list[tuple[dict[str, Any], type[RaydrError], str]] = [
        (sections | {"method": {"kind": "fed-umap"}}, ScenarioError, "a run of method.kind 'fed-tsne'"),
        (sections | {"method": TSNE | {"dimensions": 3}}, ScenarioError, "a map of 2 dimensions"),
        (others | {"method": TSNE}, DataError, "other columns"),
        ({"data": {"source": "iris"}, "method": TSNE}, DataError, "other columns"),
        (
            sections | {"method": encoded | {"hidden": [9]}, "prior": str(encoder)},
            ScenarioError,
            "other layers",
        ),
    ]
    for scenario, error, text in cases:
        with pytest.raises(error, match=text):
            tiny_run(tmp_path / "new", **{"prior": str(folder)} | scenario)
    keyed = {"method": {"kind": "landmark-ne"}, "privacy": {"isometry_key": True}}
    for keys, text in (
        ({"evaluate_every": 1}, "draws maps without the earlier run"),
        (keyed, r"privacy\.isometry_key turns the rows of each run in another way"),
    ):
        with pytest.raises(ScenarioError, match=text):
            read(tiny() | {"prior": str(folder)} | keys)
    joined = {"count": 3, "joined": [{"path": "a.csv", "node": "one"}]}
    with pytest.raises(ScenarioError, match="leave node out"):
        read(tiny() | {"clients": joined})
    with pytest.raises(ScenarioError, match="add them to sites"):
        read(tiny() | {"data": {}, "clients": {"sites": [{"path": "b.csv"}], "joined": [{"path": "a.csv"}]}})


def test_command_redraws(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sections, south = first_wards(tmp_path)
    folder = tiny_run(tmp_path / "run", method=TSNE, **sections)
    assert status(["join", str(folder), str(south), "--out", str(tmp_path / "new")]) == 2
    assert "are for --redraw" in capsys.readouterr().err
    assert status(["join", str(folder), str(south), "--redraw", "--out", str(tmp_path / "new")]) == 0
    out, err = capsys.readouterr()
    assert out.strip() == str(tmp_path / "new" / "report.html")
    assert "with the new site south" in " ".join(err.split())
