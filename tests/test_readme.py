"""The README and the pages are correct: commands run, scenarios are valid, keys and options are complete."""

from __future__ import annotations

import re
import shlex
import tomllib
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
import yaml
from fast import fast_only
from pages import ROOT, Block, blocks, name_of, pages, run_blocks, run_line, write_files
from scenario_reference import MARK, PAGE, POLICIES, method_pages, policy_reference, reference
from sweeps import inline

import raydr
from raydr.attacks import ATTACKS
from raydr.data import DATASETS, IN_MEMORY
from raydr.deployment.site_settings import SiteSettings, read_site
from raydr.front.cli import app
from raydr.front.commands.lists import CATALOGUES
from raydr.privacy.policy import Policy
from raydr.privacy.policy_file import read_policy
from raydr.scenarios.afterwards.transforming import transform as _transform  # noqa: F401  before a test puts another `read` in place
from raydr.scenarios.schema import reading
from raydr.tune import running
from raydr.tune.reading import is_sweep, read_sweep

README = ROOT / "README.md"
COMMANDS = ROOT / "docs" / "commands.md"
GUIDE = ROOT / "CONTRIBUTING.md"
PAGES = pages()
RUN = ("sh", "python")
ELSEWHERE = {
    "docs/estimators.md": "test_estimators.py runs its Python and checks its output",
    "docs/writing-a-method.md": "its Python is tests/example_method.py, which test_extensions.py installs and runs",
}
"""Pages with Python that another test runs."""
NOT_RUN = {
    (
        "docs/cluster.md",
        "bash",
    ): "starts a cluster: tests/support/several_nodes.py starts one, and test_jobs.py submits to it",
    (
        "docs/writing-a-method.md",
        "",
    ): "is tests/example_method.py, which test_extensions.py installs and runs",
    ("docs/installing.md", "text"): "installs packages from an index",
}
"""Blocks that no test runs, by page and language, with the reason."""
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
    "landmark-ne": {"method.rounds": 2, "method.hidden": [8], "method.landmarks": 10},
    "fedavg-ne": {"method.rounds": 2, "method.hidden": [8]},
    "fedprox-ne": {"method.rounds": 2, "method.hidden": [8]},
    "local-ne": {"method.rounds": 2, "method.hidden": [8]},
    "global-ne": {"method.rounds": 2, "method.hidden": [8]},
    "dsne": {"method.early_iterations": 5, "method.iterations": 5},
    "fed-pca": {},
    "private-map": {"method.early_iterations": 5, "method.iterations": 5, "method.placing_iterations": 5},
}
"""Settings with which a run of each method is quick."""


def table(path: Path, header: str) -> None:
    """Write a table with this header: 30 patients of two hospitals."""
    rng = np.random.default_rng(0)
    words = {"hospital": ("north", "east"), "diagnosis": ("yes", "no", "no"), "disease": ("yes", "no", "no")}
    columns = [
        [words[name][row % len(words[name])] for row in range(30)]
        if name in words
        else [f"{value:.1f}" for value in rng.normal(100.0, 20.0, 30)]
        for name in header.split(",")
    ]
    path.write_text("\n".join([header, *map(",".join, zip(*columns, strict=True))]) + "\n")


@pytest.fixture
def quick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Run in an empty folder, with every scenario replaced by a small one of the same kind, without pictures."""
    original = reading.read

    def read_small(scenario: Any, overrides: Mapping[str, Any] | None = None) -> Any:
        asked = original(scenario, overrides)
        small = {**SMALL[asked.method.kind], "runtime.federation": "inline", "metrics": ["npa_10"]}
        if asked.clients.deployed:
            del small["metrics"]
        if asked.data.source not in (None, IN_MEMORY):
            small |= {"data.source": "digits", "data.rows": 60}
        return original(scenario, {**(overrides or {}), **small})

    monkeypatch.setattr(reading, "read", read_small)
    monkeypatch.setattr(running, "read", read_small)
    for module in ("picture", "sweep.frontier"):
        monkeypatch.setattr(f"raydr.report.{module}.png", lambda figure, **options: b"")
    inline(monkeypatch, reports=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


SLOW = re.compile(r"docs/(choosing|papers|private-map|sense|tutorials/(?!fed-pca|heart-disease).*)\.md")
"""Pages whose commands others run with another scenario; the fast tests read their scenarios and their options."""
TESTED_HERE = [page for page in PAGES if blocks(page, *RUN) and name_of(page) not in ELSEWHERE]


@pytest.mark.parametrize(
    "page", fast_only(lambda page: not SLOW.fullmatch(name_of(page)), TESTED_HERE), ids=name_of
)
def test_commands_and_python_of_a_page_run(
    page: Path, quick: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(ATTACKS, "_things", dict(ATTACKS.items()))  # a page defines one
    for source in (README, page):
        write_files(source, quick)
        for block in blocks(source, "csv"):
            header = block.text.splitlines()[0]
            table(quick / ("heart_disease.csv" if "thal" in header else "patients.csv"), header)
    promised = re.findall(r"^print\(.*\)  # (-?\d+\.\d+)$", page.read_text(), re.MULTILINE)
    printed: list[str] = []
    for names in run_blocks(page):
        printed += capsys.readouterr().out.strip().splitlines()
        if page in (README, COMMANDS) and "result" in names:
            assert isinstance(names.pop("result"), raydr.Result)
            assert Path(printed[-1]).is_file()
    numbers = [line for line in printed if re.fullmatch(r"-?\d+\.\d+(e-?\d+)?", line)]
    for figure in promised:
        decimals = len(figure.partition(".")[2])
        assert figure in {f"{float(number):.{decimals}f}" for number in numbers}


@pytest.mark.parametrize("page", [page for page in PAGES if name_of(page) in ELSEWHERE], ids=name_of)
def test_commands_of_pages_with_python_tested_elsewhere_run(page: Path, quick: Path) -> None:
    deque((run_line(line) for block in blocks(page, "sh") for line in block.commands), maxlen=0)


def test_commands_of_slow_pages_have_known_names_and_options() -> None:
    seen = set()
    for page in filter(lambda page: SLOW.fullmatch(name_of(page)), TESTED_HERE):
        for line in (line for block in blocks(page, "sh") for line in block.commands):
            program, name, *arguments = shlex.split(line)
            if program != "raydr":
                continue
            seen.add(name)
            command = app.commands[name]
            found = command.make_parser(click.Context(command)).parse_args(arguments)[0]
            if name == "run" and not found["scenario"].endswith(".yaml"):
                assert found["scenario"] in reading.shipped(), line
    assert {"run", "audit", "sweep"} <= seen


def test_each_block_is_run_or_is_in_not_run() -> None:
    known = {*RUN, "yaml", "csv", "toml"}
    unrun = {(name_of(page), block.language) for page in PAGES for block in blocks(page)} - {
        (name_of(page), language) for page in PAGES for language in known
    }
    assert unrun == {place for place in NOT_RUN if (ROOT / place[0]).is_file()}
    assert all((ROOT / name).is_file() for name in ELSEWHERE)


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "yaml")], ids=name_of)
def test_each_scenario_of_a_page_is_valid(page: Path, tmp_path: Path) -> None:
    write_files(README, tmp_path)
    for number, block in enumerate(blocks(page, "yaml")):
        file = tmp_path / f"{number}.yaml"
        content = yaml.safe_load(block.text)
        file.write_text(block.text)
        if set(content) <= set(Policy.model_fields):
            assert read_policy(str(file)).rules
            continue
        if set(content) <= set(SiteSettings.model_fields):
            assert read_site(file).name == content["name"]
            continue
        if "name" not in content:  # a part of a scenario
            content = {"name": "part", "data": {"source": "digits"}, "clients": {"count": 10}, **content}
            file.write_text(yaml.safe_dump(content, sort_keys=False))
        read = read_sweep if is_sweep(content) else reading.read
        assert read(file).name == content["name"]


@pytest.mark.parametrize("block", [block for page in PAGES for block in blocks(page, "toml")])
def test_each_entry_point_of_a_page_is_in_a_group_of_raydr(block: Block) -> None:
    assert tomllib.loads(block.text)["project"]["entry-points"].keys() <= {
        f"raydr.{things}"
        for things in (
            "methods",
            "metrics",
            "embedders",
            "partitions",
            "adversaries",
            "attacks",
            "mechanisms",
        )
    }


def test_the_readme_starts_with_make_demo_and_make_test() -> None:
    first = blocks(README, "sh")[0]
    assert [line.split()[:2] for line in first.commands] == [["make", "demo"], ["make", "test"]]


def command_lines(page: Path) -> list[str]:
    """Return the lines of a page's table of commands."""
    return [line for line in page.read_text().splitlines() if line.startswith("| `raydr")]


def test_the_page_of_commands_names_every_command() -> None:
    named = re.findall(r"`raydr (\w+)", "\n".join(command_lines(COMMANDS)))
    assert list(dict.fromkeys(named)) == list(app.commands)


def test_the_page_of_commands_names_every_option() -> None:
    options = {
        option
        for command in app.commands.values()
        for each in (command, *getattr(command, "commands", {}).values())
        for parameter in each.params
        for option in (*parameter.opts, *parameter.secondary_opts)
        if option.startswith("--")
    }
    assert set(re.findall(r"--[a-z-]+", "\n".join(command_lines(COMMANDS)))) == options


def test_the_page_of_commands_names_the_data_sets_that_need_no_folder() -> None:
    text = COMMANDS.read_text()
    for dataset in DATASETS.values():
        assert (f"`{dataset.name}`" in text) == (dataset.origin != "folder")


def test_the_guide_names_existing_functions_and_every_room() -> None:
    text = GUIDE.read_text()
    for file, function in re.findall(r"`([\w/]+\.py)::(\w+)`", text):
        assert f"def {function}(" in (ROOT / "raydr" / file).read_text()
    rooms = {path.name for path in (ROOT / "raydr").iterdir() if (path / "__init__.py").is_file()}
    named = set(re.findall(r"(\w+)/", text.partition("## One gradient's way")[0]))
    assert rooms <= named


def test_the_page_of_commands_names_what_can_be_listed() -> None:
    line = next(line for line in command_lines(COMMANDS) if line.startswith("| `raydr list"))
    assert re.findall(r"`(\w+)`", line) == list(CATALOGUES)


def test_each_link_leads_to_a_file() -> None:
    made = {ROOT / "docs" / "notebook.md"}
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#\s]+)", page.read_text()):
            place = page.parent / target
            assert target.startswith("https://") or place.exists() or place.resolve() in made, (
                f"{page.name}: {target}"
            )


def test_the_reference_of_scenarios_matches_the_models() -> None:
    _, _, made = PAGE.read_text().partition(MARK)
    assert made.strip() == reference().strip(), (
        f"run `python tests/scenario_reference.py` to renew {PAGE.name}"
    )


def test_the_keys_of_a_policy_match_the_model() -> None:
    _, _, made = POLICIES.read_text().partition(MARK)
    assert made.strip() == policy_reference().strip(), (
        f"run `python tests/scenario_reference.py` to renew {POLICIES.name}"
    )


def test_the_pages_of_methods_match_the_models() -> None:
    made = method_pages()
    assert set(made) == set((PAGE.parent / "methods").iterdir())
    for place, content in made.items():
        assert place.read_text() == content, f"run `python tests/scenario_reference.py` to renew {place.name}"
