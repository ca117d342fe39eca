"""A site that joins a finished run is placed, recorded and shown; the run itself does not change."""

from __future__ import annotations

import json
import pickle
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from fast import fast_only
from placed import CASES, folder_of, irises
from places import DOCS
from tiny import tiny_run

import raydr
from raydr.arrays import FloatArray
from raydr.data.provenance import sha256_of_file
from raydr.errors import DataError, OutputError, RaydrError, ScenarioError
from raydr.front.cli import status
from raydr.methods.joining import admit
from raydr.privacy.secrets import Origin, client_secret
from raydr.report import write_report
from raydr.runfolder.joined import read_joined
from raydr.scenarios.afterwards.transforming import place

FEATURES = ("age", "glucose", "bmi")
SHORT: dict[str, Any] = {"early_iterations": 20, "iterations": 20}
POSTED = {
    "fed-tsne": "Distances",
    "fed-umap": "Distances",
    "fed-spectral": "Kernels",
    "sense": "AnchorDistances",
    "private-map": None,
}
"""Per-record reply of a joining site by method; other methods send the place."""
SHOWN = {"report.html", "embedding.png"}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


def site_of(folder: Path, name: str = "south", rows: FloatArray | None = None) -> Path:
    """Write the file of a site with some irises."""
    file = folder / f"{name}.npz"
    np.savez(file, X=irises().rows[::10] + 0.01 if rows is None else rows)
    return file


def facts(folder: Path) -> dict[str, str]:
    """Return the hash of every file of a run except report, picture and joined sites."""
    return {
        path.relative_to(folder).as_posix(): sha256_of_file(path)
        for path in folder.rglob("*")
        if path.is_file() and path.name not in SHOWN and "joined" not in path.relative_to(folder).parts
    }


@pytest.fixture
def run(tmp_path: Path, root: Path) -> Path:
    """Return a copy of a run for one test."""
    return Path(shutil.copytree(folder_of("fed-tsne", root), tmp_path / "run"))


FAST = (
    "fed-tsne",
    "fed-tsne, keyed",
    "fed-spectral",
    "sense",
    "sense, pointwise",
    "sense, noisy distances",
    "fedne",
    "fed-pca",
)
"""A case of each family and of each kind of message of a joining site."""


@pytest.mark.parametrize(
    "case", fast_only(lambda case: case in FAST, [case for case in CASES if case != "fed-tsne, noisy"])
)
@pytest.mark.usefixtures("no_report")
def test_joining_site_does_not_move_the_map(case: str, root: Path, tmp_path: Path) -> None:
    """The site sends what the method's clients send, and its rows are placed like new rows."""
    folder = Path(shutil.copytree(folder_of(case, root), tmp_path / "run"))
    before, embedding = facts(folder), raydr.Result(folder).embedding
    joined = raydr.join(folder, site_of(tmp_path))
    assert facts(folder) == before
    np.testing.assert_array_equal(joined.embedding, embedding)
    (south,) = joined.joined
    kind = str(CASES[case]["method"]["kind"])
    posted = [entry.kind for entry in south.left if entry.granularity == "per-record"]
    assert posted == [name for name in [POSTED.get(kind, "SitePlaces")] if name is not None]
    assert south.points.shape == (15, 2)
    if "noisy" not in case and "cne" not in case:
        new = irises().take(np.arange(0, 150, 10))
        wanted = place(folder, type(new)(**{**vars(new), "rows": new.rows + 0.01})).places
        np.testing.assert_allclose(south.points, wanted, atol=1e-2 * np.ptp(embedding))


@pytest.mark.usefixtures("no_report")
def test_joining_site_receives_only_the_shared_secret(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client of the run sends it over the server; the host never has the root or another client's secret."""
    folder = Path(shutil.copytree(folder_of("fed-tsne, keyed", root), tmp_path / "run"))
    transports: list[Any] = []

    def watched(transport: Any, *arguments: Any, **options: Any) -> Any:
        transports.append(transport)
        return admit(transport, *arguments, **options)

    monkeypatch.setattr("raydr.scenarios.afterwards.joining.admit", watched)
    (site,) = raydr.join(folder, site_of(tmp_path)).joined
    of_run = Origin(str(root / "secret")).named(json.loads((folder / "environment.json").read_text())["run"])
    host, member = transports[0].hosts
    held = pickle.dumps(host)
    others = [of_run.root, *(client_secret(of_run.root, client) for client in range(10))]
    assert not [secret for secret in others if secret.to_bytes() in held]
    assert of_run.shared.to_bytes() in held
    assert host._clients[0].shared == member._clients[1].shared == of_run.shared
    assert host._clients[0].secret != member._clients[1].secret
    messages = [(entry.kind, entry.count) for entry in site.ledger if entry.public in ("random", "sealed")]
    assert messages == [("PublicKey", 2), ("SealedSecret", 1)]


@pytest.mark.usefixtures("no_report")
def test_site_joins_a_keyed_run_with_its_own_noise(tmp_path: Path) -> None:
    data = {"path": str(site_of(tmp_path, "irises", irises().rows))}
    privacy = {"isometry_key": True, "noise": {"on": "distances", "level": 0.1}}
    method = {"kind": "sense", "anchors": 3, "embedder": {"kind": "tsne", **SHORT}}
    folder = tiny_run(tmp_path / "run", method=method, privacy=privacy, data=data)
    assert raydr.join(folder, site_of(tmp_path)).joined[0].points.shape == (15, 2)


@pytest.mark.usefixtures("no_report")
def test_joining_site_publishes_places_like_the_other_clients(tmp_path: Path) -> None:
    for publish, message in (("server", ["SitePlaces"]), ("local", [])):
        data = {"path": str(site_of(tmp_path, "irises", irises().rows))}
        folder = tiny_run(tmp_path / publish, method={"kind": "fed-pca", "publish": publish}, data=data)
        (site,) = raydr.join(folder, site_of(tmp_path)).joined
        assert [entry.kind for entry in site.left if entry.granularity == "per-record"] == message
        assert bool(site.privacy.infinite) == bool(message)


@pytest.mark.usefixtures("no_report")
def test_second_site_leaves_the_first_unchanged(run: Path, tmp_path: Path) -> None:
    raydr.join(run, site_of(tmp_path))
    first = {path.name: path.read_bytes() for path in (run / "joined" / "1").iterdir()}
    joined = raydr.join(run, site_of(tmp_path), site="far south").joined
    assert [site.site for site in joined] == ["south", "far south"]
    assert {path.name: path.read_bytes() for path in (run / "joined" / "1").iterdir()} == first
    np.testing.assert_array_equal(joined[0].points, joined[1].points)


def test_page_and_terminal_show_a_joined_site(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "before.html"
    page.write_bytes(write_report(run).read_bytes())
    assert "joined later" not in page.read_text()
    assert status(["join", str(run), str(site_of(tmp_path)), "--site", "a $x_$ <b>site</b>"]) == 0
    out, err = capsys.readouterr()
    assert out == f"{run / 'report.html'}\n"
    assert "left a $x_$ <b>site</b>: the distance of every record to every landmark" in err
    shown = (run / "report.html").read_text()
    assert "Sites that joined later" in shown
    assert "<h3>a $x_$ &lt;b&gt;site&lt;/b&gt;</h3>" in shown
    assert status(["report", str(run)]) == 0
    assert section(run) == shown.partition('<section class="joined">')[2].partition("</section>")[0]
    assert status(["compare", str(run)]) == 0
    assert status(["transform", str(run), str(site_of(tmp_path)), "--out", str(tmp_path / "placed.csv")]) == 0


def section(run: Path) -> str:
    """Return the section of the page about joined sites."""
    page = (run / "report.html").read_text()
    return page.partition('<section class="joined">')[2].partition("</section>")[0]


@pytest.mark.usefixtures("no_report")
def test_joined_run_can_be_audited(run: Path, tmp_path: Path) -> None:
    raydr.join(run, site_of(tmp_path))
    assert raydr.audit(run, ["trilateration"]).audit is not None
    assert len(read_joined(run)) == 1


def hospital(path: Path, rows: int, seed: int, names: tuple[str, ...] = FEATURES, **more: Any) -> Path:
    rng = np.random.default_rng(seed)
    columns = {name: rng.normal(size=rows).round(4).tolist() for name in names} | more
    lines = [",".join(columns), *(",".join(map(str, line)) for line in zip(*columns.values(), strict=True))]
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.usefixtures("no_report")
def test_joining_matches_columns_by_name_and_keeps_ids_and_labels(tmp_path: Path) -> None:
    """Missing values are filled with the values in the run folder."""
    table = hospital(tmp_path / "all.csv", 60, 0, sick=[row % 2 for row in range(60)], id=list(range(60)))
    data = {"path": str(table), "label": "sick", "id": "id", "missing": "median", "scale": "standard"}
    folder = tiny_run(tmp_path / "run", data=data, method={"kind": "fed-tsne", "perplexity": 5, **SHORT})
    late = hospital(
        tmp_path / "late.csv", 8, 1, FEATURES[::-1][:2], id=[f"late {row}" for row in range(8)], sick=["yes"] * 8,
        note=["a"] * 8,
    )  # fmt: skip
    (site,) = raydr.join(folder, late).joined
    assert site.rows == tuple(f"late {row}" for row in range(8))
    assert site.labels == ("yes",) * 8
    assert site.data.filled == {"late": {"age": 8}}
    assert [source.client for source in site.data.sources] == ["late"]
    assert pq.read_table(site.path / "embedding.parquet").column_names == [
        "row",
        "client",
        "x",
        "y",
        "novelty",
        "label",
    ]
    raydr.transform(folder, late, out=tmp_path / "placed.parquet")
    placed = pq.read_table(tmp_path / "placed.parquet")
    np.testing.assert_allclose(
        site.points, np.column_stack([placed["x"], placed["y"]]), atol=1e-2 * np.ptp(site.points)
    )


def refused(folder: Path, data: Path, site: str | None = None) -> str:
    """Return the paragraph of the error; the folder is unchanged."""
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    with pytest.raises(RaydrError) as caught:
        raydr.join(folder, data, site=site)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before
    assert not (folder / "joined").exists() or any((folder / "joined").iterdir())
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.usefixtures("no_report")
def test_used_site_name_is_refused(run: Path, tmp_path: Path) -> None:
    mapped = raydr.Result(run).to_frame("pyarrow")["client"].to_pylist()[0]
    assert f"already has a client {mapped!r}" in refused(run, site_of(tmp_path), mapped)
    assert "has no name" in refused(run, site_of(tmp_path), " ")
    raydr.join(run, site_of(tmp_path))
    assert "A site 'south' has already joined" in refused(run, site_of(tmp_path))


def test_unsupported_methods_give_a_reason(tmp_path: Path) -> None:
    folder = tiny_run(tmp_path / "run", method={"kind": "local-ne", "rounds": 1, "hidden": [4]})
    assert "each client draws its own map" in refused(folder, site_of(tmp_path))
    noisy = tiny_run(tmp_path / "noisy", privacy={"noise": {"on": "data", "level": 0.1}})
    assert "a run does not keep that spread" in refused(noisy, site_of(tmp_path))


def test_incomplete_folders_are_refused(run: Path, tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="as 'incomplete' in its name says"):
        raydr.join(Path(shutil.copytree(run, tmp_path / "run.incomplete-0")), site_of(tmp_path))
    (run / "ledger.json").unlink()
    assert "ledger.json is missing" in refused(run, site_of(tmp_path))
    assert "is not a folder" in refused(tmp_path / "nowhere", site_of(tmp_path))


def test_mismatching_data_are_refused(run: Path, tmp_path: Path) -> None:
    assert "has 2 columns without names" in refused(run, site_of(tmp_path, "narrow", np.ones((3, 2))))
    far = site_of(tmp_path, "far", np.full((2, 4), 1e300))
    refused(run, far)


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, OSError(28, "No space left on device")])
@pytest.mark.usefixtures("no_report")
def test_interrupted_join_leaves_the_folder_unchanged(
    run: Path, tmp_path: Path, interruption: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = facts(run)

    def stop(path: Path, content: Any) -> None:
        raise interruption

    with monkeypatch.context() as patch:
        patch.setattr("raydr.scenarios.afterwards.joining.write_json", stop)
        with pytest.raises((KeyboardInterrupt, OutputError)):
            raydr.join(run, site_of(tmp_path))
    assert facts(run) == before
    assert not (run / "joined").exists()
    assert len(raydr.join(run, site_of(tmp_path)).joined) == 1


@pytest.mark.usefixtures("edits_accepted")
@pytest.mark.usefixtures("no_report")
def test_site_of_another_map_is_detected(run: Path, tmp_path: Path) -> None:
    raydr.join(run, site_of(tmp_path))
    file = run / "joined" / "1" / "joining.json"
    content = json.loads(file.read_text())
    file.write_text(json.dumps(content | {"map": "0" * 64}))
    with pytest.raises(OutputError, match="joined another map than the one in"):
        read_joined(run)
    file.write_text(json.dumps(content | {"rows": 3}))
    with pytest.raises(OutputError, match="is not complete"):
        read_joined(run)
    file.unlink()
    with pytest.raises(OutputError, match=r"joining\.json is missing"):
        read_joined(run)


def test_places_that_no_page_can_draw_are_refused(root: Path, tmp_path: Path) -> None:
    """The folder could not be read again."""
    folder = Path(shutil.copytree(folder_of("fed-pca", root), tmp_path / "run"))
    rows = irises().rows[::10].astype(np.float64)
    rows[3] = 1e37
    assert "1 rows have no place on the map, first row 3" in refused(folder, site_of(tmp_path, rows=rows))


def test_error_types_are_as_documented(run: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError):
        raydr.join(run, tmp_path / "nowhere.csv")
    folder = tiny_run(tmp_path / "local", method={"kind": "local-ne", "rounds": 1, "hidden": [4]})
    with pytest.raises(ScenarioError):
        raydr.join(folder, site_of(tmp_path))


def test_new_rows_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = (DOCS / "new-rows.md").read_text()
    names: dict[str, Any] = {}
    for block in re.findall(r"^```python\n(.*?)^```$", page, re.DOTALL | re.MULTILINE):
        exec(block, names)
    assert names["south"].points.shape == (12, 2)
