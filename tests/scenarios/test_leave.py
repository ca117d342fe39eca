"""A run without one of its sites: as if the site had never been there, with an account of what remains of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny import Wards, tiny, tiny_run

import raydr
from raydr.errors import DataError, OutputError, RaydrError, ScenarioError
from raydr.front.cli import status
from raydr.privacy.composition import RunCost, composed
from raydr.runfolder import read_run
from raydr.runfolder.earlier import EarlierRun, read_earlier
from raydr.runfolder.records import JOINED
from raydr.scenarios.schema.reading import read

PCA: dict[str, Any] = {"kind": "fed-pca"}
TSNE: dict[str, Any] = {"kind": "fed-tsne", "early_iterations": 20, "iterations": 20}
NOISY: dict[str, Any] = {
    "kind": "private-map",
    "epsilon": 2.0,
    "clip": 20.0,
    "early_iterations": 5,
    "iterations": 5,
}

pytestmark = pytest.mark.usefixtures("no_report")


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def left(folder: Path, site: str, **options: Any) -> tuple[raydr.Result, EarlierRun]:
    """Return the run without the site, and its comparison with the run of the folder."""
    run = raydr.leave(folder, site, **options)
    assert run.earlier is not None
    return run, run.earlier


@pytest.mark.parametrize("method", [PCA, TSNE], ids=lambda method: method["kind"])
def test_site_leaves_as_if_it_had_never_been_there(method: dict[str, Any], tmp_path: Path) -> None:
    """The map is bit-identical with that of a table without the site's rows, and the earlier run is unchanged."""
    wards = Wards.drawn()
    folder = tiny_run(tmp_path / "run", method=method, **wards.written(tmp_path / "all.csv"))
    before = contents(folder)
    run, earlier = left(folder, "north")
    assert contents(folder) == before
    assert run.folder == tmp_path / "run-without-north"
    stay = np.flatnonzero(wards.wards != "north")
    others = Wards(wards.ids[stay], wards.wards[stay], wards.labels[stay], wards.rows[stay])
    never = tiny_run(tmp_path / "never", method=method, **others.written(tmp_path / "others.csv"))
    np.testing.assert_array_equal(run.embedding, raydr.Result(never).embedding)
    assert earlier.rows == len(wards.of("north")) == read_run(run.folder).data.withdrawn
    assert set(read_run(run.folder).clients) == {"east", "south"}
    assert earlier.displacement is not None
    assert earlier.displacement.rows == len(stay)


def test_run_without_a_site_is_a_scenario(tmp_path: Path) -> None:
    """Its scenario repeats it, and another site can leave it."""
    folder = tiny_run(tmp_path / "run", method=PCA, **Wards.drawn().written(tmp_path / "all.csv"))
    first, _ = left(folder, "north")
    again = raydr.run(str(first.folder / "scenario.yaml"), out=tmp_path / "again")
    np.testing.assert_array_equal(again.embedding, first.embedding)
    assert again.earlier is None
    second, earlier = left(first.folder, "south", out=tmp_path / "second")
    assert set(read_run(second.folder).clients) == {"east"}
    assert len(earlier.costs) == 3, "of all runs so far"
    with pytest.raises(DataError, match="'east' is the only site"):
        raydr.leave(second.folder, "east")


def test_file_of_a_site_that_left_is_not_read(tmp_path: Path) -> None:
    wards = Wards.drawn()
    for ward in wards.names:
        np.savez(tmp_path / f"{ward}.npz", X=wards.rows[wards.of(ward)])
    sites = [{"path": str(tmp_path / f"{ward}.npz")} for ward in wards.names]
    folder = tiny_run(tmp_path / "run", method=PCA, data={}, clients={"sites": sites})
    (tmp_path / "north.npz").unlink()
    run, _ = left(folder, "north")
    never = tiny_run(tmp_path / "never", method=PCA, data={}, clients={"sites": [sites[0], sites[2]]})
    np.testing.assert_array_equal(run.embedding, raydr.Result(never).embedding)


@pytest.mark.parametrize("kind", ["iid", "dirichlet", "one-class"])
def test_other_clients_keep_the_rows_that_were_dealt(kind: str, tmp_path: Path) -> None:
    count = {} if kind == "one-class" else {"count": 4}
    folder = tiny_run(tmp_path / "run", method=PCA, clients={"partition": {"kind": kind}, **count})
    run = read_run(folder)
    names = list(dict.fromkeys(run.clients))
    found = read_run(left(folder, names[1])[0].folder)
    held = [row for row in zip(run.clients, np.asarray(run.rows).tolist(), strict=True) if row[0] != names[1]]
    assert list(zip(found.clients, np.asarray(found.rows).tolist(), strict=True)) == held


def test_held_out_rows_leave_with_their_site_and_public_rows_stay(tmp_path: Path) -> None:
    wards = Wards.drawn()
    sections = wards.written(tmp_path / "all.csv", holdout=0.2)
    method = {"kind": "sense", "anchors": 12, "anchor_source": "sample", "embedder": {"kind": "tsne"}}
    folder = tiny_run(tmp_path / "run", method=method, metrics=[], **sections)
    run, _ = left(folder, "north")
    before, now = (read_run(path).data for path in (folder, run.folder))
    assert 0 < now.held_out < before.held_out
    assert now.set_apart == before.set_apart == 12
    assert [
        notice for notice in now.notices if "12 rows set apart as public rows are of clients that" in notice
    ]


def test_account_says_what_the_server_had_of_the_site(tmp_path: Path) -> None:
    """Distances are of each record; sums are of the site alone, or under secure aggregation of all sites."""
    for name, secure in (("plain", False), ("secure", True)):
        privacy = {"secure_aggregation": secure, "colluding": 0.3}
        folder = tiny_run(tmp_path / name, method=TSNE, privacy=privacy, clients={"count": 4})
        _, earlier = left(folder, "client-2")
        assert [message.kind for message in earlier.held("record")] == ["Distances"]
        assert "Moment" in {message.kind for message in earlier.held("sum" if secure else "site")}
        assert "Moment" not in {message.kind for message in earlier.held("site" if secure else "sum")}
        assert "Enrolment" not in {message.kind for message in earlier.messages}, "row counts are public"
        assert earlier.model is not None
        assert {"landmarks", "references"} <= set(earlier.model.changed)
        assert 0 < earlier.model.of_site < earlier.model.references
        assert "embedding.parquet" in earlier.files


def test_epsilon_of_the_earlier_run_stays_spent(tmp_path: Path) -> None:
    folder = tiny_run(tmp_path / "run", method=NOISY, **Wards.drawn().written(tmp_path / "all.csv"))
    run, earlier = left(folder, "north")
    spent, new = (cost.epsilon for cost in earlier.costs)
    assert [spent, new] == [read_run(path).privacy.epsilon for path in (folder, run.folder)]
    assert earlier.held("record") == []
    assert spent is not None
    assert new is not None
    costs = [RunCost(epsilon, epsilon, 1e-5, "record", "zero-out") for epsilon in (spent, new)]
    assert earlier.together.epsilon == pytest.approx(composed(costs, 1e-5).epsilon)
    assert max(spent, new) < earlier.together.epsilon < spent + new


@pytest.mark.parametrize(
    ("site", "error", "text"),
    [
        ("nort", DataError, r"no site 'nort' \(did you mean north\?\). Sites: 'east', 'north', 'south'"),
        ("", DataError, "no site ''"),
        (" north", DataError, "did you mean north"),
        ("later", DataError, "'later' joined .* do not depend on its rows"),
    ],
)
def test_site_that_cannot_leave(site: str, error: type[RaydrError], text: str, tmp_path: Path) -> None:
    wards = Wards.drawn()
    folder = tiny_run(tmp_path / "run", method=PCA, **wards.written(tmp_path / "all.csv"))
    wards.written(tmp_path / "later.csv")
    raydr.join(folder, tmp_path / "later.csv")
    with pytest.raises(error, match=text):
        raydr.leave(folder, site)
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == ["run"]
    assert (folder / JOINED / "1").is_dir()


def test_runs_that_cannot_be_repeated_without_a_site(tmp_path: Path) -> None:
    (tmp_path / "sweep").mkdir()
    (tmp_path / "sweep" / "sweep.yaml").touch()
    with pytest.raises(ScenarioError, match="is a sweep folder"):
        raydr.leave(tmp_path / "sweep", "north")
    with pytest.raises(OutputError, match="is not a folder"):
        raydr.leave(tmp_path / "nothing", "north")
    sections = Wards.drawn().written(tmp_path / "all.csv")
    folder = tiny_run(tmp_path / "run", method=PCA, **sections)
    text = (tmp_path / "all.csv").read_text()
    (tmp_path / "all.csv").write_text(text.replace("ill", "fit"))
    with pytest.raises(DataError, match="has changed since the run"):
        raydr.leave(folder, "north")
    (tmp_path / "all.csv").write_text(text)
    (folder / "fingerprints.json").unlink()
    (tmp_path / "all.csv").write_text("\n".join(text.splitlines()[:-5]) + "\n")
    with pytest.raises(RaydrError, match="have other rows than"):
        raydr.leave(folder, "north")
    assert not list(tmp_path.glob("run-*")), "nothing half written"


def test_interrupted_run_without_a_site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing remains without a checkpoint. With one, the resumed run still has the comparison."""
    from raydr.scenarios.running import simulation

    method = {"kind": "fed-tsne", "landmarks_from": "learnt", "landmarks": 12, "rounds": 4} | TSNE
    sections = Wards.drawn().written(tmp_path / "all.csv")

    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    for every in (0, 2):
        runtime = tiny()["runtime"] | {"checkpoint_every": every}
        folder = tiny_run(tmp_path / f"run{every}", method=method, runtime=runtime, **sections)
        with monkeypatch.context() as patched:
            patched.setattr(simulation, "write_results", interrupted)
            with pytest.raises(KeyboardInterrupt):
                raydr.leave(folder, "north")
        unfinished = list(tmp_path.glob(f"run{every}-*"))
        assert len(unfinished) == (every > 0)
    resumed = raydr.resume(unfinished[0])
    assert resumed.folder.name == "run2-without-north"
    assert resumed.earlier is not None
    assert resumed.earlier.site == "north"


def test_column_that_only_the_site_filled(tmp_path: Path) -> None:
    sections = Wards.drawn().written(tmp_path / "all.csv", missing="mean")
    lines = (tmp_path / "all.csv").read_text().splitlines()
    emptied = [line if ",north," in line else f"{line.rpartition(',')[0]}," for line in lines[1:]]
    (tmp_path / "all.csv").write_text("\n".join([lines[0], *emptied]) + "\n")
    folder = tiny_run(tmp_path / "run", method=PCA, **sections)
    with pytest.raises(DataError, match=r"without 'north'.*'d'"):
        raydr.leave(folder, "north")


def test_spellings_of_a_site(tmp_path: Path) -> None:
    wards = Wards.drawn()
    sections = wards.written(tmp_path / "all.csv")
    text = (tmp_path / "all.csv").read_text()
    (tmp_path / "all.csv").write_text(
        text.replace(",north,", ",north ward,").replace(",north ward,", ",North  Ward,", 3)
    )
    sections["clients"]["join_spellings"] = True
    folder = tiny_run(tmp_path / "run", method=PCA, **sections)
    run, earlier = left(folder, "NORTH WARD")
    assert earlier.site == "north ward"
    assert run.folder.name == "run-without-north-ward"
    assert earlier.rows == len(wards.of("north"))


def test_scenario_without_clients() -> None:
    for clients, text in (
        ({"count": 3, "without": ["client-1", "client-1"]}, "names a client twice"),
        ({"sites": [{"path": "a.csv"}], "without": ["a"]}, "names clients of a table"),
    ):
        with pytest.raises(ScenarioError, match=text):
            read(tiny() | {"clients": clients} | ({"data": {}} if "sites" in clients else {}))


def test_scenario_without_unknown_or_all_clients(tmp_path: Path) -> None:
    for names, text in (
        (["client-9"], "'client-9', which is no client"),
        ([f"client-{i}" for i in range(3)], "all"),
    ):
        with pytest.raises(ScenarioError, match=text):
            tiny_run(tmp_path / "run", clients={"count": 3, "without": names})
    assert not (tmp_path / "run").exists()


def test_command_prints_the_account(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tiny_run(tmp_path / "run", method=TSNE, **Wards.drawn().written(tmp_path / "all.csv"))
    capsys.readouterr()
    assert status(["leave", str(folder), "north", "--out", str(tmp_path / "new")]) == 0
    out, err = capsys.readouterr()
    assert out.strip() == str(tmp_path / "new" / "report.html")
    for text in ("without north", "Messages on each record", "Earlier model", "Privacy of north"):
        assert text in " ".join(err.split())
    found = read_earlier(tmp_path / "new")
    assert found is not None
    assert json.loads((tmp_path / "new" / "earlier.json").read_text())["site"] == "north"
