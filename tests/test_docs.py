"""The site is built without a warning, has every page, and all its links are valid."""

from __future__ import annotations

import html
import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
import yaml
from pages import ROOT, name_of, pages
from places import TESTS

NOTEBOOKS = sorted((ROOT / "docs").rglob("*.ipynb"))
EXAMPLE = TESTS / "example_method.py"
IN_60 = 60
TUTORIALS = ROOT / "docs" / "tutorials"


class Links(HTMLParser):
    """Links and anchors of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.targets: list[str] = []
        self.anchors: set[str] = set()
        self.fetched: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value for name, value in attrs if value}
        self.anchors.update(found[name] for name in ("id", "name") if name in found)
        link = found.get("href") if tag in ("a", "link") else found.get("src")
        if link:
            self.targets.append(link)
            if tag != "a":
                self.fetched.append(link)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site like `make docs`; a warning is an error."""
    if importlib.util.find_spec("mkdocs") is None:
        pytest.skip("mkdocs is not installed: pip install 'raydr[docs]'")
    folder = tmp_path_factory.mktemp("site")
    command = ["-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    done = subprocess.run(
        [sys.executable, *command],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def read(site: Path) -> dict[Path, Links]:
    """Read every page of the site."""
    return {page: Links(page.read_text(encoding="utf-8")) for page in sorted(site.rglob("*.html"))}


def test_each_link_of_the_site_leads_to_a_page_and_an_anchor(site: Path, read: dict[Path, Links]) -> None:
    for page, links in read.items():
        if page.name == "404.html":  # for a server that may put it anywhere
            continue
        for link in links.targets:
            parts = urlsplit(link)
            if parts.scheme or not (parts.path or parts.fragment):
                continue
            target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            assert target.exists(), f"{page.relative_to(site)}: {link}"
            if parts.fragment and target in read:
                assert unquote(parts.fragment) in read[target].anchors, f"{page.relative_to(site)}: {link}"


def test_no_page_loads_from_another_server(read: dict[Path, Links]) -> None:
    for page, links in read.items():
        assert not [link for link in links.fetched if urlsplit(link).netloc], page.name


def test_the_search_index_is_a_script_for_pages_opened_from_the_folder(site: Path) -> None:
    """A browser lets such a page load scripts, and no other file."""
    assert "landmarks" in (site / "search" / "search_index.js").read_text(encoding="utf-8")


@pytest.mark.slow
def test_pages_opened_from_the_folder_can_be_searched(site: Path, browser: Any) -> None:
    context = browser.new_context(offline=True)
    page = context.new_page()
    page.goto((site / "methods" / "sense.html").as_uri())
    page.locator("[data-md-component=search-query]").press_sequentially("landmarks")
    found = page.locator(".md-search-result__item")
    found.first.wait_for(state="visible")
    found.filter(has_text="Landmarks").first.locator("a").first.click()
    page.wait_for_url("**/*.html?h=landmarks*")
    context.close()


def test_each_page_of_the_docs_is_in_the_navigation(site: Path) -> None:
    pages_shown = set(_leaves(_settings()["nav"]))
    outside = {"docs/tutorials/figures"}
    named = {name_of(page).removeprefix("docs/") for page in pages() if not _within(page, outside)}
    assert named - {"README.md", "CONTRIBUTING.md"} <= pages_shown
    for name in pages_shown:
        assert (site / name.replace(".md", ".html")).is_file()


def test_the_python_reference_has_every_public_name(site: Path) -> None:
    import raydr

    text = (site / "api.html").read_text(encoding="utf-8")
    for name in raydr.__all__:
        if name[0].islower() or name in ("Result", "SweepResult"):
            assert f'id="raydr.{name}"' in text, name
    for part in ("to_frame", "embedding", "RaydrError", "transform"):
        assert part in text


@pytest.mark.slow
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=name_of)
def test_a_notebook_runs_and_has_the_same_output(notebook: Path, tmp_path: Path) -> None:
    nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed: pip install 'raydr[docs]'")
    import nbformat

    content = nbformat.read(notebook, as_version=4)
    kept = [_printed(cell) for cell in content.cells]
    run = nbclient.NotebookClient(
        content, timeout=240, resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
    for now, then in zip(run.cells, kept, strict=True):
        words, numbers = _words_and_numbers(_printed(now))
        assert words == _words_and_numbers(then)[0]
        assert numbers == pytest.approx(_words_and_numbers(then)[1], abs=0.05)


def test_the_page_of_the_60_line_method_shows_its_file(site: Path) -> None:
    lines = [line for line in EXAMPLE.read_text().splitlines() if line.strip()]
    assert len(lines) <= IN_60
    page = (site / "writing-a-method.html").read_text(encoding="utf-8")
    shown = html.unescape(re.sub(r"<[^>]+>", "", page))
    assert [line for line in lines if line not in shown] == []


def test_each_picture_and_table_of_figures_is_on_a_page() -> None:
    texts = [page.read_text(encoding="utf-8") for page in pages()]
    for made in [*(ROOT / "docs" / "pictures").iterdir(), *(TUTORIALS / "figures").iterdir()]:
        place = made.relative_to(ROOT / "docs").as_posix()
        assert any(place in text for text in texts), place
        assert made.stat().st_size, f"run `python tests/support/tutorial_figures.py {made.stem}`"


def _printed(cell: Any) -> list[Any]:
    """Return the text that a cell printed; pictures differ between machines."""
    return [
        output.get("data", {}).get("text/plain")
        for output in cell.get("outputs", ())
        if "data" in output and "image/png" not in output["data"]
    ]


def _words_and_numbers(printed: list[Any]) -> tuple[str, list[float]]:
    """Split printed text into words and numbers, because the last digits depend on the processor."""
    number = r"\d+(?:\.\d+)?"
    return re.sub(number, "#", repr(printed)), [float(found) for found in re.findall(number, repr(printed))]


def _within(page: Path, folders: set[str]) -> bool:
    return name_of(page.parent) in folders


def _leaves(nav: Any) -> Iterator[str]:
    if isinstance(nav, str):
        yield nav
    for part in nav.values() if isinstance(nav, dict) else nav if isinstance(nav, list) else ():
        yield from _leaves(part)


def _settings() -> Any:
    return yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
