"""The bits of a run's results."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from raydr.scenarios.runner import run
from raydr.scenarios.schema.reading import read


def scenario(method: dict[str, Any], runtime: dict[str, Any], *, seed: int = 0) -> dict[str, Any]:
    return {
        "name": "bits",
        "seed": seed,
        "data": {"source": "digits", "rows": 300},
        "clients": {"count": 5, "partition": {"kind": "dirichlet", "alpha": 0.3, "min_rows": 0}},
        "method": method,
        "runtime": runtime,
        "metrics": ["npa_10"],
    }


def bits(folder: Path) -> dict[str, str]:
    """Hashes of what a run computed: the map, its score, its messages, its model.

    ``model.json`` also says which scenario it is of, of which these tests change where it runs.
    """
    files = [folder / name for name in ("embedding.parquet", "metrics.json", "ledger.json")]
    files += sorted(path for path in (folder / "model").iterdir() if path.name != "model.json")
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def bits_of_run(out: Path, method: dict[str, Any], runtime: dict[str, Any], **options: Any) -> dict[str, str]:
    return bits(run(read(scenario(method, runtime, **options)), out=out, report=False))
