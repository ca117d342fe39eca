"""Docs, messages, pages and docstrings are in plain English: they avoid some phrases."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from pages import ROOT, name_of, pages

PHRASES = re.compile(
    r"\b(told of|beside|so many|nobody|whoever|anew|none where|as far as|in so far|upon itself|whose a|vouches"
    r"|no praise|lament)\b",
    re.IGNORECASE,
)
"""Words of an older style: "compared with", "this many", "no client", "again" and the like say it better."""
FIRST_LINE = re.compile(r"(Of|What) ")
"""No docstring starts with these: that of a function is imperative, that of a class a noun."""
TEXTS = re.compile(r"<(style|script)\b.*?</\1>|\{#.*?#\}|/\*.*?\*/", re.DOTALL)
CODE = re.compile(r"^```.*?^```$|`[^`\n]*`|<!--.*?-->", re.DOTALL | re.MULTILINE)
ROWS = re.compile(r"\((stands )?beside [^)]*\)")
"""Names of rows of the papers' tables."""
ROOMS = ("raydr", "actors", "scenarios", "tune")


def sources(*endings: str) -> list[Path]:
    """Return the files of raydr with these endings; links are not followed."""
    return sorted(path for room in ROOMS for ending in endings for path in (ROOT / room).rglob(f"*.{ending}"))


def readings(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the docstrings and strings of a Python file by line."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value


def first_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the first lines of the docstrings of a Python file, including those of constants and fields."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        body = getattr(node, "body", None)
        for statement in body if isinstance(body, list) else ():
            if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
                yield statement.lineno, str(statement.value.value).strip().partition("\n")[0]


@pytest.mark.parametrize("page", pages(), ids=name_of)
def test_a_page_is_in_plain_english(page: Path) -> None:
    assert PHRASES.findall(ROWS.sub("", CODE.sub("", page.read_text(encoding="utf-8")))) == []


@pytest.mark.parametrize("room", ROOMS)
def test_strings_and_docstrings_are_in_plain_english(room: str) -> None:
    found = [
        f"{name_of(path)}:{line}: {match[0]}"
        for path in sources("py")
        if path.is_relative_to(ROOT / room)
        for line, text in readings(path)
        for match in PHRASES.finditer(text)
    ]
    assert found == []


def test_docstrings_open_with_a_verb_or_a_noun() -> None:
    found = [
        f"{name_of(path)}:{line}: {text}"
        for path in sources("py")
        for line, text in first_lines(path)
        if FIRST_LINE.match(text)
    ]
    assert found == []


@pytest.mark.parametrize("path", sources("html", "js", "yaml"), ids=name_of)
def test_the_texts_of_pages_and_scenarios_are_in_plain_english(path: Path) -> None:
    assert PHRASES.findall(ROWS.sub("", TEXTS.sub("", path.read_text(encoding="utf-8")))) == []
