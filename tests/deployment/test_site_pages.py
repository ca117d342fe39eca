"""A site's own page has its own rows, with its labels, at home."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hospitals import NAMES, Hospitals, described, hospitals

import raydr
from raydr.deployment.inline import InlineSites
from raydr.deployment.site_host import SiteHost
from raydr.deployment.site_settings import read_site
from raydr.errors import ScenarioError
from raydr.journal import unheard
from raydr.runfolder import read_run
from raydr.runfolder.maps import read_columns
from raydr.scenarios.afterwards.showing import shown
from raydr.scenarios.afterwards.site_page import scenario_of, write_site_page
from raydr.scenarios.runner import run
from raydr.scenarios.schema.reading import read


def deployed(at: Hospitals, out: Path, **keys: Any) -> tuple[Path, list[Path]]:
    """Run, and return the server's folder and those of the sites' pages."""
    pages: list[Path] = []
    hosts = [
        SiteHost(site=read_site(path), index=index, at_end=lambda ended: pages.append(write_site_page(ended)))
        for index, path in enumerate(at.settings)
    ]
    folder = run(
        read(described(deployed=True, at=at, **keys)), out=out, report=False, port=InlineSites(hosts)
    )
    return folder, pages


@pytest.mark.parametrize(
    "keys",
    [
        {"fidelity_rows": 20},
        {"data": {"harmonize": "combat"}},
        {"method": {"kind": "fed-pca", "publish": "local"}, "data": {"missing": "mean"}},
    ],
    ids=["fed-umap", "harmonized", "stays"],
)
def test_a_site_has_a_page_with_its_own_rows_and_labels(keys: dict[str, Any], tmp_path: Path) -> None:
    at = hospitals(tmp_path / "sites")
    folder, pages = deployed(at, tmp_path / "run", **keys)
    assert [page.parent.parent.parent.name for page in pages] == list(NAMES)
    for name, page in zip(NAMES, pages, strict=True):
        own = read_run(page)
        lines = (at.folder / name / "patients.csv").read_text().splitlines()[1:]
        assert own.rows == tuple(line.split(",")[0] for line in lines)
        assert own.labels == tuple(line.split(",")[5] for line in lines)
        assert set(own.clients) == {name}
        assert own.measures.federated["trustworthiness"] is not None
        assert "Below" in {entry.kind for entry in own.ledger} or "missing" in str(keys)
        text = (page / "report.html").read_text(encoding="utf-8")
        assert f"rows of {name}" in text
        others = [f"{other}-" for other in NAMES if other != name]
        assert not any(identity in text for identity in others)
        if (folder / "embedding.parquet").exists():
            server = read_columns(folder, "embedding.parquet", ("client", "x", "y"))
            here = np.array(server["client"].to_pylist()) == name
            theirs = np.stack([np.asarray(server[axis])[here] for axis in "xy"], axis=1)
            assert np.array_equal(theirs, own.federated)
    if "fidelity_rows" in keys:
        estimates = [read_run(each).measures.fidelity["query rows"].metrics for each in (folder, *pages)]
        assert all(
            each["trustworthiness"].estimate == estimates[0]["trustworthiness"].estimate for each in estimates
        )


def test_a_site_places_new_rows_at_home(tmp_path: Path) -> None:
    at = hospitals(tmp_path / "sites")
    _, pages = deployed(at, tmp_path / "run")
    out = tmp_path / "placed.parquet"
    raydr.transform(pages[0], at.folder / "north" / "patients.csv", out=out)
    assert len(read_columns(tmp_path, out.name, ("row", "x", "y"))["x"]) == len(read_run(pages[0]).rows)


def test_a_page_that_cannot_be_written_loses_no_run(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    at = hospitals(tmp_path / "sites")

    def fails(ended: object) -> None:
        raise OSError("the disk is full")

    hosts = [
        SiteHost(site=read_site(path), index=index, at_end=fails) for index, path in enumerate(at.settings)
    ]
    folder = run(
        read(described(deployed=True, at=at)), out=tmp_path / "run", report=False, port=InlineSites(hosts)
    )
    assert len(read_run(folder).rows) == 97
    assert "the disk is full" in caplog.text


def test_pages_tell_what_the_server_can_reconstruct_and_the_estimated_fidelity(tmp_path: Path) -> None:
    folder, sites = deployed(hospitals(tmp_path / "sites"), tmp_path / "run", fidelity_rows=20)
    shown(folder.absolute(), unheard)
    for page in (folder, *sites):
        text = (page / "report.html").read_text(encoding="utf-8")
        rows = len(read_run(page).rows)
        assert f"enough data to reconstruct {rows} of {rows} records" in text
        assert "the federation estimates" in text
        assert "Estimates without pooling rows" in text
        assert "all rows:" not in text, "a site has no metric of all rows"
        assert "All rows</th>" not in text
        assert "clients at their sites" in text
        assert "raydr export scenario.yaml" in text
        assert "raydr run scenario.yaml" not in text, "no command of the page needs rows of other sites"
        assert "raydr audit run" not in text
        assert "rows of this run are at their sites" in text
        assert "each of 1 client" not in text
        with pytest.raises(ScenarioError, match="rows of this run are at their sites: simulate"):
            raydr.audit(page)


def test_a_site_opens_no_file_that_the_server_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sent = (
        "name: sent\ndata: {codebook: /etc/hostname}\nclients: {deployed: [north]}\nmethod: {kind: fed-pca}\n"
    )
    opened: list[Path] = []
    monkeypatch.setattr("raydr.scenarios.schema.data.read_codebook", opened.append)
    with pytest.raises(ScenarioError, match=r"names a file in data\.codebook"):
        scenario_of(sent)
    assert not opened
    assert scenario_of(sent.replace("codebook: /etc/hostname", "missing: drop")).name == "sent"
