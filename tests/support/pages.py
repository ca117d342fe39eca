"""What the pages say to do, done: fenced blocks of Markdown, and one who runs them in their order."""

from __future__ import annotations

import importlib.util
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from places import ROOT

from raydr.front.cli import status

MAKEFILE = ROOT / "Makefile"
EXPORT = ROOT / "raydr" / "front" / "flower_export.py"
_FENCE = re.compile(
    r"^(?P<fence>```+)(?P<language>\w*)[^\n]*\n(?P<text>.*?)^(?P=fence)$", re.DOTALL | re.MULTILINE
)


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, empty where it says none, and its text."""

    language: str
    text: str

    @property
    def named(self) -> str | None:
        """The file that a scenario or table is to be kept in: what its first line, a comment, says."""
        found = re.match(r"# (\S+\.(?:yaml|py))\n", self.text)
        return found[1] if found else None

    @property
    def commands(self) -> list[str]:
        """Command lines without comments; a line that ends in a backslash goes on."""
        lines = self.text.replace("\\\n", " ").splitlines()
        return [line for line in (line.partition(" # ")[0].strip() for line in lines) if line]


def pages() -> list[Path]:
    """All pages: the README, the guide, and those of the site."""
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def name_of(page: Path) -> str:
    """A page's place below the root, as people say it."""
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path, *languages: str) -> list[Block]:
    """Fenced blocks of a page in their order, all or those in some languages."""
    found = _FENCE.finditer(page.read_text(encoding="utf-8"))
    every = [Block(match["language"], match["text"]) for match in found]
    return [block for block in every if not languages or block.language in languages]


def write_files(page: Path, folder: Path) -> None:
    """Put the scenarios and policies of a page that name their file where its commands look for them."""
    for block in blocks(page, "yaml"):
        if (
            block.named
            and not Path(block.named).is_absolute()
            and {"name", "profile"} & set(yaml.safe_load(block.text))
        ):
            (folder / block.named).write_text(block.text)


def run_blocks(page: Path) -> Iterator[dict[str, Any]]:
    """Run a page's commands and Python here, in their order; after each block, the names that Python has.

    Raises
    ------
    AssertionError
        A command failed, or is of a program that nobody checks.
    """
    names: dict[str, Any] = {}
    for block in blocks(page, "sh", "python"):
        if block.language == "python":
            exec(compile(block.text, name_of(page), "exec"), names)
        for line in block.commands if block.language == "sh" else ():
            run_line(line)
        yield names


def run_line(line: str) -> None:
    """Run a command of raydr; of other programs see that what is asked for is there."""
    program, *arguments = shlex.split(line)
    match program:
        case "raydr":
            assert status(arguments) == 0, line
        case "make":
            targets = re.findall(r"^([a-z]+):", MAKEFILE.read_text(), re.MULTILINE)
            assert {argument for argument in arguments if "=" not in argument} <= set(targets), line
        case "python" if arguments[0] == "-m":
            assert importlib.util.find_spec(arguments[1]) is not None, line
        case "python":
            assert (ROOT / arguments[0]).is_file(), line
        case "flwr":
            app, option, setting = arguments[1:]
            assert (arguments[0], app, option) == ("run", ".", "--run-config"), line
            assert re.search(rf"^{setting.split('=')[0]} = ", EXPORT.read_text(), re.MULTILINE), line
        case "export":
            assert arguments[0].startswith("RAYDR_DATA="), line
        case _:
            raise AssertionError(f"nobody checks {line!r}")
