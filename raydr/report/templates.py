"""Jinja templates of the pages, and the style sheets and scripts that stand in them."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from raydr.report import wording

if TYPE_CHECKING:
    from jinja2 import Environment


@cache
def templates() -> Environment:
    """Templates by room and file, as ``run/report.html``: values are escaped, and a missing name is an error."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("raydr.report", ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.policies["json.dumps_kwargs"] = {"sort_keys": False, "separators": (",", ":")}
    environment.globals["part"] = part
    environment.filters |= {
        "count": wording.count,
        "size": wording.size,
        "duration": wording.duration,
        "commands": _commands,
    }
    return environment


def _commands(text: str) -> str:
    """Escaped text, in which what stands between backticks is code."""
    from markupsafe import Markup, escape

    return Markup(re.sub(r"`([^`]*)`", r"<code>\1</code>", str(escape(text))))


def part(file: str) -> str:
    """Text of a style sheet or script, as ``map/map.css``, marked as safe to stand in the page."""
    from markupsafe import Markup

    return Markup((Path(__file__).parent / file).read_text(encoding="utf-8"))
