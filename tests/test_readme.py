"""What the README and the pages say is so: every command runs, every scenario is read, every key is there."""

from __future__ import annotations

import importlib.util
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from scenario_reference import MARK, PAGE, reference
from sweeps import inline

import raydr
from raydr.data import DATASETS, IN_MEMORY
from raydr.front.cli import app, status
from raydr.front.commands.lists import CATALOGUES
from raydr.scenarios import reading
from raydr.scenarios.transforming import transform as _transform  # noqa: F401  before a test puts another `read` in place
from raydr.tune import running
from raydr.tune.reading import is_sweep, read_sweep

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
GUIDE = ROOT / "CONTRIBUTING.md"
PAGES = [README, GUIDE, *sorted((ROOT / "docs").glob("*.md"))]
SMALL: dict[str, dict[str, Any]] = {
    "fed-tsne": {
        "method.rounds": 1,
        "method.landmarks": 10,
        "method.early_iterations": 5,
        "method.iterations": 5,
    },
    "fed-umap": {"method.rounds": 1, "method.landmarks": 10, "method.epochs": 5},
    "fed-spectral": {
        "method.rounds": 1,
        "method.landmarks": 10,
        "method.embedder": {"kind": "tsne", "early_iterations": 5, "iterations": 5},
    },
    "sense": {
        "method.anchors": 10,
        "method.embedder": {"kind": "tsne", "early_iterations": 5, "iterations": 5},
    },
    "fedne": {"method.rounds": 2, "method.hidden": [8]},
    "private-map": {"method.early_iterations": 5, "method.iterations": 5, "method.placing_iterations": 5},
}
"""What makes a run of each method quick."""


def blocks(page: Path, language: str) -> list[str]:
    """Fenced blocks of a page in one language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE)


def commands(page: Path) -> list[str]:
    """Command lines of a page, without prompts and comments."""
    lines = [line for block in blocks(page, "sh") for line in block.splitlines()]
    return [line for line in (line.partition(" # ")[0].strip() for line in lines) if line]


def patients(path: Path, header: str) -> None:
    """A table with the README's header: 30 patients of two hospitals."""
    rng = np.random.default_rng(0)
    rows = [
        f"{('north', 'east')[i % 2]},{rng.integers(20, 90)},{rng.integers(70, 200)},{rng.normal(28, 5):.1f},"
        f"{rng.integers(0, 300)},{('yes', 'no')[i % 3 > 0]}"
        for i in range(30)
    ]
    path.write_text("\n".join([header, *rows]) + "\n")


@pytest.fixture
def quick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to run in, where every scenario that is read becomes a small one of the same kind."""
    original = reading.read

    def read_small(scenario: Any, overrides: Mapping[str, Any] | None = None) -> Any:
        asked = original(scenario, overrides)
        small = {**SMALL[asked.method.kind], "runtime.federation": "inline", "metrics": ["npa_10"]}
        if asked.data.source not in (None, IN_MEMORY):
            small |= {"data.source": "digits", "data.rows": 60}
        return original(scenario, {**(overrides or {}), **small})

    monkeypatch.setattr(reading, "read", read_small)
    monkeypatch.setattr(running, "read", read_small)
    inline(monkeypatch)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_of_a_page_works(page: Path, quick: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for block in [*blocks(README, "yaml"), *blocks(page, "yaml")]:
        named = re.match(r"# (\S+\.yaml)\n", block)
        if named:
            (quick / named[1]).write_text(block)
    for block in [*blocks(README, "csv"), *blocks(page, "csv")]:
        patients(quick / "patients.csv", block.splitlines()[0])
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for line in commands(page):
        program, *arguments = shlex.split(line)
        match program:
            case "raydr":
                assert status(arguments) == 0, f"{line}: {capsys.readouterr().err}"
            case "make":
                assert {argument for argument in arguments if "=" not in argument} <= set(targets)
            case "python":
                assert arguments[0] == "-m"
                assert importlib.util.find_spec(arguments[1]) is not None
            case "export":
                assert arguments[0].startswith("RAYDR_DATA=")
            case _:
                pytest.fail(f"nobody checks {line!r}")


def test_the_python_of_the_readme_runs(quick: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for block in blocks(README, "python"):
        names: dict[str, Any] = {}
        exec(block, names)
        assert isinstance(names["result"], raydr.Result)
        assert Path(capsys.readouterr().out.strip()).is_file()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_scenario_of_a_page_is_one(page: Path, tmp_path: Path) -> None:
    whole = [block for block in blocks(page, "yaml") if "name" in yaml.safe_load(block)]
    assert whole or page not in (README, PAGE)
    for number, block in enumerate(whole):
        file = tmp_path / f"{number}.yaml"
        content = yaml.safe_load(block)
        file.write_text(block)
        if is_sweep(content):
            (tmp_path / "patients.yaml").write_text(
                next(text for text in blocks(README, "yaml") if "patients" in text)
            )
            assert read_sweep(file).name == content["name"]
        else:
            assert reading.read(file).name == content["name"]


def test_the_first_block_of_the_readme_is_the_two_commands() -> None:
    assert [line.split()[:2] for line in commands(README)[:2]] == [["make", "demo"], ["make", "test"]]


def test_the_readme_names_every_command_and_option() -> None:
    text = README.read_text()
    table = "\n".join(line for line in text.splitlines() if line.startswith("| `raydr"))
    named = re.findall(r"`raydr (\w+)", table)
    assert list(dict.fromkeys(named)) == list(app.commands)
    options = {
        option
        for command in app.commands.values()
        for parameter in command.params
        for option in parameter.opts
        if option.startswith("--")
    }
    assert set(re.findall(r"--[a-z-]+", table)) == options


def test_the_readme_names_the_data_sets_that_need_no_folder() -> None:
    text = README.read_text()
    for dataset in DATASETS.values():
        assert (f"`{dataset.name}`" in text) == (dataset.origin != "folder")


def test_the_guide_names_functions_and_rooms_that_are_there() -> None:
    text = GUIDE.read_text()
    for file, function in re.findall(r"`([\w/]+\.py)::(\w+)`", text):
        assert f"def {function}(" in (ROOT / "raydr" / file).read_text()
    rooms = {path.name for path in (ROOT / "raydr").iterdir() if (path / "__init__.py").is_file()}
    named = set(re.findall(r"(\w+)/", text.partition("## One gradient's way")[0]))
    assert rooms <= named


def test_the_readme_names_what_can_be_listed() -> None:
    line = next(line for line in README.read_text().splitlines() if line.startswith("| `raydr list"))
    assert re.findall(r"`(\w+)`", line) == list(CATALOGUES)


def test_every_link_leads_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#\s]+)\)", page.read_text()):
            assert target.startswith("https://") or (page.parent / target).exists(), f"{page.name}: {target}"


def test_every_key_of_a_scenario_is_in_its_page_as_the_models_have_it() -> None:
    _, _, made = PAGE.read_text().partition(MARK)
    assert made.strip() == reference().strip(), (
        f"run `python tests/scenario_reference.py` to renew {PAGE.name}"
    )
