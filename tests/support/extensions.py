"""Packages that add to raydr, installed for a test."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

GROUPS = ("methods", "embedders", "partitions", "adversaries", "attacks", "mechanisms", "metrics")
PLAIN: dict[str, Any] = {
    "name": "extended",
    "data": {"source": "iris", "scale": "minmax"},
    "clients": {"count": 3, "partition": {"kind": "blocks"}},
    "method": {"kind": "power-pca"},
    "runtime": {"federation": "inline"},
    "compare": ["central"],
    "metrics": ["reach"],
}


def installed(folder: Path, module: str, source: str, groups: tuple[str, ...] = GROUPS) -> Path:
    """A package as an installer leaves it: one module, and the entry points that name it."""
    about = folder / f"{module}-1.0.dist-info"
    about.mkdir(parents=True)
    (folder / f"{module}.py").write_text(source)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
    points = "".join(f"[raydr.{group}]\nmine = {module}\n" for group in groups)
    (about / "entry_points.txt").write_text(points)
    return folder


def command(packages: Path | None, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run raydr, with the packages of a folder beside its own."""
    path = os.pathsep.join(filter(None, [str(packages or ""), os.environ.get("PYTHONPATH", "")]))
    return subprocess.run(
        [sys.executable, "-m", "raydr", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": path},
    )
