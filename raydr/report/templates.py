"""Jinja templates of the pages, with their style sheets and scripts."""

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
    """Return the template environment; names are paths such as ``run/report.html``.

    Values are escaped, and a missing name is an error.
    """
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
    """Escape text and format the parts between backticks as code."""
    from markupsafe import Markup, escape

    return Markup(re.sub(r"`([^`]*)`", r"<code>\1</code>", str(escape(text))))


def part(file: str) -> str:
    """Return a style sheet or script, such as ``map/map.css``, marked as safe for the page."""
    from markupsafe import Markup

    return Markup((Path(__file__).parent / file).read_text(encoding="utf-8"))
