"""``preset: published`` of SENSE against P3's description, line by line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tiny import tiny_run, tiny_scenario

from raydr.methods.sense.settings import PUBLISHED, SenseSettings
from raydr.runfolder.reading import read_run

P3 = SenseSettings(preset="published")

DESCRIBED: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("2 (11), algorithm 2", "rows move by SMACOF against fixed anchors", {"solver": "smacof"}),
    ("algorithm 2, line 1", "the first places are random", {"start": "random"}),
    ("algorithm 2, line 7", "an absolute tolerance, without a value: none here", {"tolerance": 0.0}),
    ("2 (11)", "places are those of the iteration; nothing is rotated afterwards", {"alignment": "none"}),
    ("4.1", "one anchor fewer than features", {"anchors": None}),
    ("A.8", "in-distribution anchors", {"anchor_source": "sample"}),
    ("A.8, table 4", "anchors as they are; lower ranks are an experiment", {"anchor_rank": None}),
)  # fmt: skip
"""Place in P3, its statement in other words, and the statement in settings."""
OF_THE_CODE = {"iterations": 2000}
"""From the authors' code: P3 gives no number of iterations."""


@pytest.mark.parametrize(("place", "statement", "meant"), DESCRIBED, ids=[line[1] for line in DESCRIBED])
def test_each_line_of_the_papers_description_is_a_setting(
    place: str, statement: str, meant: dict[str, Any]
) -> None:
    for key, value in meant.items():
        assert getattr(P3, key) == value, (place, statement)


def test_preset_sets_exactly_what_the_paper_describes() -> None:
    described = {key: value for _, _, meant in DESCRIBED for key, value in meant.items()}
    assert described | OF_THE_CODE == dict(PUBLISHED)
    assert P3.per_client(features=64, rows=1797) == (63, 0)


def test_explicit_settings_override_the_preset() -> None:
    assert SenseSettings(preset=None) == SenseSettings()
    given = SenseSettings(preset="published", iterations=300, anchors=20)
    assert given.model_dump() == P3.model_dump() | {"iterations": 300, "anchors": 20}
    scenario = tiny_scenario(method={"kind": "sense", "preset": "published"}, method__anchors=5)
    assert scenario.method.model_dump() == P3.model_dump() | {"anchors": 5}


def test_a_run_by_the_preset_equals_one_with_the_values_written_out(tmp_path: Path) -> None:
    """Its geometry is the iteration's after 2,000 steps, which is nearer than after the default's 300."""
    data = {"source": "digits", "rows": 150}
    method = {"kind": "sense", "anchors": 40}
    written = {"solver": "smacof", "tolerance": 0.0, "alignment": "none", "anchor_source": "sample"}
    runs = {
        name: tiny_run(tmp_path / name, data=data, method=method | change, metrics=["distance_error"])
        for name, change in {
            "preset": {"preset": "published"},
            "written": written | {"iterations": 2000},
            "capped": written,
        }.items()
    }
    maps = {name: (run / "embedding.parquet").read_bytes() for name, run in runs.items()}
    errors = {name: read_run(run).measures.federated["distance_error"] for name, run in runs.items()}
    assert maps["preset"] == maps["written"] != maps["capped"]
    assert errors["preset"] == errors["written"] < 0.99 * errors["capped"]
