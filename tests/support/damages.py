"""Damaged files, and what reading them comes to."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from raydr.front.cli import status


def outcome(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """Exit status and what was said; refusals are one paragraph."""
    code = status(arguments)
    _, err = capsys.readouterr()
    if code:
        assert code == 2, err[-2000:]
        assert err.startswith("raydr: ")
        assert err.count("\n") == 1
        assert len(err) < 5000
    return code, err


def damages(content: bytes, draw: random.Random, count: int) -> Iterator[bytes]:
    """Flipped bits, missing ends and middles, repeated parts, bytes of other files."""
    yield b""
    for _ in range(count):
        at, to = sorted(draw.randrange(len(content) + 1) for _ in range(2))
        changed = bytearray(content)
        for _ in range(draw.choice([1, 1, 1, 4, 16])):
            changed[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
        choices = [bytes(changed)] * 4 + [
            content[:at],
            content[:at] + content[to:],
            content[:to] + content[at:],
        ]
        yield draw.choice([*choices, content[:at] + draw.randbytes(to - at) + content[to:]])


def changed(file: str, change: Callable[[Any], Any]) -> Callable[[Path], None]:
    """Change the content of a JSON file."""

    def apply(folder: Path) -> None:
        content = json.loads((folder / file).read_text())
        (folder / file).write_text(json.dumps(change(content)))

    return apply
