"""Spellings of a site's name: noticed, and joined when asked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tiny import tiny_run, tiny_scenario

import raydr
from raydr.data.loading import load
from raydr.data.survey.columns import encode
from raydr.data.survey.site_names import as_named, join_spellings, of_site_files, of_sites, spelling_of
from raydr.errors import DataError, RaydrError, ScenarioError
from raydr.front.cli import status
from raydr.scenarios.running.client_data import dealt_out

NORTH = ("north", "north", "NORTH", "\uff2eorth", " north ")
"""Spellings of one site. The third and fourth are as frequent as each other."""
SOUTH = ("South  Wing", "south wing", "South Wing\u00a0", "St. Mary", "St Mary")
"""The first three are one site. Punctuation sets the last two apart."""
ROWS = 60


def names_of(spelt: bool) -> list[str]:
    """Return the site of each row, as people write it or in one way."""
    written = [(NORTH if row % 2 else SOUTH)[row // 2 % 5] for row in range(ROWS)]
    if spelt:
        return written
    return [
        "north" if spelling_of(name) == "north" else "South  Wing" if name in SOUTH[:3] else name
        for name in written
    ]


def table_of(path: Path, *, spelt: bool = True, order: Any = slice(None)) -> Path:
    """Write a table with a column of sites, two of numbers, and one of words."""
    random = np.random.default_rng(0)
    content = {
        "hospital": np.array(names_of(spelt)),
        "age": random.normal(size=ROWS).round(3),
        "bmi": random.normal(size=ROWS).round(3),
        "drug": np.array(["a", "b", "c"])[np.arange(ROWS) // 4 % 3],
    }
    lines = zip(*(column[order].tolist() for column in content.values()), strict=True)
    path.write_text(
        "\n".join([",".join(content), *(",".join(map(str, line)) for line in lines)]) + "\n", "utf-8"
    )
    return path


def settings(path: Path, *, joined: bool = True, **data: Any) -> dict[str, Any]:
    return {
        "data": {"path": str(path), "scale": "standard", "categories": "one-hot"} | data,
        "clients": {
            "partition": {"kind": "by-column", "column": "hospital"},
            "join_spellings": joined,
        },
    }


def test_most_frequent_spelling_is_kept_for_any_order_of_rows() -> None:
    cells = np.array(["b", "B", "B ", "", "a", "A", "\uff21", "Strasse", "STRA\u00dfE", "x  y", "X y"])
    random = np.random.default_rng(0)
    for _ in range(5):
        order = random.permutation(len(cells))
        spelt = np.strings.strip(cells[order])
        joined = join_spellings(encode("site", spelt, spelt == ""))
        assert joined.names == ("A", "B", "STRA\u00dfE", "X y"), (
            "the first in sorted order of as frequent ones"
        )
        assert (joined.codes == -1).tolist() == (spelt == "").tolist()
        for code, cell in zip(joined.codes.tolist(), spelt.tolist(), strict=True):
            assert not cell or spelling_of(joined.names[code]) == spelling_of(cell)
    distinct = encode("site", np.array(["x.y", "xy", "x y"]), np.zeros(3, np.bool_))
    assert join_spellings(distinct) is distinct


def test_notice_names_the_key_only_if_it_joins() -> None:
    (both,) = of_sites(["north", "North"])
    assert "clients.join_spellings: true" in both
    (dots,) = of_sites(["St. Mary", "St Mary"])
    assert "join_spellings" not in dots
    assert of_sites(["\uff2eorth", "North"])
    assert of_sites(["north", "south"]) == ()
    (files,) = of_site_files(["north", "North"])
    assert "in one file" in files
    assert "join_spellings" not in files


@pytest.mark.parametrize("seed", [None, 0, 1])
def test_joined_table_equals_one_written_in_one_way(tmp_path: Path, seed: int | None) -> None:
    """Words are counted by joined sites too: each spelling alone has too few rows of a word."""
    order = slice(None) if seed is None else np.random.default_rng(seed).permutation(ROWS)
    spelt = table_of(tmp_path / "spelt.csv", order=order)
    plain = table_of(tmp_path / "plain.csv", spelt=False, order=order)
    options: dict[str, Any] = {"client": "hospital", "categories": "one-hot"}
    joined = load(path=spelt, join_spellings=True, **options)
    expected = load(path=plain, **options)
    assert joined.client_names == expected.client_names == ("South  Wing", "St Mary", "St. Mary", "north")
    np.testing.assert_array_equal(joined.client_keys, expected.client_keys)
    np.testing.assert_array_equal(joined.rows, expected.rows)
    assert joined.features == expected.features == ("age", "bmi", "drug=a", "drug=b", "drug=c")
    *others, doubt = joined.doubts
    assert "'NORTH' is 'north'" in doubt
    assert others == list(expected.doubts)
    assert len(load(path=spelt, client="hospital", categories="leave-out").client_names) == 8


def test_arrays_are_joined_too(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", X=np.eye(4), client=np.array(["b", "a ", "A", "a"]))
    table = load(path=tmp_path / "x.npz", client="client", join_spellings=True)
    assert table.client_names == ("a", "b")
    assert table.client_keys is not None
    assert table.client_keys.tolist() == [1, 0, 0, 0]


@pytest.mark.parametrize("surveyed", [False, True])
def test_estimators_join_spellings(surveyed: bool) -> None:
    """Words that five rows of two sites have are mapped, and each spelling of a site has fewer rows."""
    random = np.random.default_rng(0)
    rows: Any = random.normal(size=(ROWS, 2))
    if surveyed:
        rows = pa.table(
            {"x": rows[:, 0], "y": rows[:, 1], "drug": [("a", "b")[row // 4 % 2] for row in range(ROWS)]}
        )
    sites = [("1 north", "2 south")[row % 2] for row in range(ROWS)]
    spelt = [name[: row // 2 % 8].upper() + name[row // 2 % 8 :] for row, name in enumerate(sites)]

    def fitted(sites: list[str], **options: Any) -> Any:
        return raydr.FedTSNE(landmarks=8, rounds=2, metrics=(), **options).fit(rows, sites=sites)

    joined, plain = fitted(spelt, join_spellings=True), fitted(sites)
    assert sorted({name.casefold() for name in joined.clients_}) == ["1 north", "2 south"]
    assert len(set(joined.clients_)) == 2
    np.testing.assert_array_equal(joined.embedding_, plain.embedding_)
    assert joined.result_.scenario["clients"]["join_spellings"]
    with pytest.raises(ScenarioError, match="set join_spellings=True"):
        fitted(spelt, scenario={"clients.join_spellings": True})
    with pytest.raises(ScenarioError, match="use a partition of kind 'by-column'"):
        raydr.FedTSNE(join_spellings=True).fit(rows)


def test_check_shows_the_sites_and_the_key(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table, out = table_of(tmp_path / "t.csv"), tmp_path / "check.json"
    arguments = ["check", str(table), "--site", "hospital", "--json", str(out)]
    assert status(arguments) == 0
    first = json.loads(out.read_text())
    assert len(first["sites"]) == 8
    assert any("clients.join_spellings: true" in notice for notice in first["notices"])
    assert status([*arguments, "--set", "clients.join_spellings=true"]) == 0
    joined = json.loads(out.read_text())
    assert {site["name"]: site["rows"] for site in joined["sites"]} == {
        "South  Wing": 18, "St Mary": 6, "St. Mary": 6, "north": 30,
    }  # fmt: skip
    assert any("'NORTH' is 'north'" in notice for notice in joined["notices"])
    assert any("'St Mary' and 'St. Mary'" in notice for notice in joined["notices"])
    capsys.readouterr()


@pytest.mark.parametrize(
    "privacy",
    [
        {"strict": "sums", "noise": {"on": "gradient", "epsilon": 1.0}},
        {"noise": {"on": "data", "level": 0.1}},
        {"secure_aggregation": True, "isometry_key": True},
    ],
    ids=["strict", "noise", "key"],
)
def test_private_runs_join_the_same_sites(tmp_path: Path, privacy: dict[str, Any]) -> None:
    table = table_of(tmp_path / "t.csv")
    strict: dict[str, Any] = {"scale": "none", "categories": "error", "features": ["age", "bmi"]}
    found = dealt_out(
        tiny_scenario(**settings(table, **(strict if "strict" in privacy else {})), privacy=privacy), None
    )
    assert found.names == ("South  Wing", "St Mary", "St. Mary", "north")
    assert bool(found.notices) == ("noise" not in privacy), "no notice may depend on a row"


@pytest.fixture(scope="module")
def harmonized(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("joined")
    method = {"kind": "fed-tsne", "landmarks": 8, "rounds": 2, "early_iterations": 5, "iterations": 5}
    content = settings(table_of(folder / "t.csv"), harmonize="scale") | {"method": method}
    return tiny_run(folder / "run", **content)


def test_new_rows_belong_to_a_site_in_any_spelling(harmonized: Path, tmp_path: Path) -> None:
    def placed(data: Path, **options: Any) -> list[Any]:
        raydr.transform(harmonized, data, out=tmp_path / "out.parquet", **options)
        table = pq.read_table(tmp_path / "out.parquet")
        return list(zip(table["x"].to_pylist(), table["y"].to_pylist(), strict=True))

    plain = placed(table_of(tmp_path / "plain.csv", spelt=False))
    assert placed(table_of(tmp_path / "spelt.csv")) == plain
    frame = pa.table({"hospital": pa.array(names_of(True)), **_columns(tmp_path / "spelt.csv")})
    pq.write_table(frame, tmp_path / "spelt.parquet")
    assert placed(tmp_path / "spelt.parquet") == plain
    unsaid = tmp_path / "unsaid.csv"
    unsaid.write_text(
        "\n".join(line.partition(",")[2] for line in (tmp_path / "plain.csv").read_text().splitlines())
    )
    assert (
        placed(unsaid, site="NORTH  ") == placed(unsaid, site="north") != placed(unsaid, site="South  Wing")
    )
    with pytest.raises(DataError, match="neither a site of the run"):
        placed(unsaid, site="N orth")
    assert as_named("x", ["X", "x "]) == "x", "several sites have this spelling"


def _columns(path: Path) -> dict[str, Any]:
    import pyarrow.csv as arrow_csv

    table = arrow_csv.read_csv(path)
    return {name: table[name] for name in table.column_names if name != "hospital"}


@pytest.mark.usefixtures("no_report")
def test_site_that_joins_cannot_have_another_spelling_of_a_name(tmp_path: Path) -> None:
    table = table_of(tmp_path / "t.csv")
    late = tmp_path / "late.csv"
    late.write_text("\n".join(table.read_text("utf-8").splitlines()[:6]) + "\n", "utf-8")
    for joined, name in ((True, "NORTH wing"), (False, "SOUTH  wing")):
        folder = tiny_run(
            tmp_path / f"run {joined}", **settings(table, joined=joined, categories="leave-out")
        )
        if joined:
            with pytest.raises(RaydrError, match="already has a client 'north'"):
                raydr.join(folder, late, site="North ")
            raydr.join(folder, late, site="West")
            with pytest.raises(RaydrError, match="'West' has already joined"):
                raydr.join(folder, late, site="west")
        assert raydr.join(folder, late, site=name).joined[-1].site == name


@pytest.mark.parametrize(
    ("clients", "remedy"),
    [
        ({"count": 3}, "use a partition of kind 'by-column'"),
        ({"sites": [{"path": "a.csv"}, {"path": "b.csv"}]}, "write the rows of a site in one file"),
    ],
)
def test_key_needs_a_column_of_sites(clients: dict[str, Any], remedy: str) -> None:
    with pytest.raises(ScenarioError, match=f"joins the names in a column.*{remedy}"):
        tiny_scenario(clients=clients | {"join_spellings": True})


def test_site_files_with_alike_names_are_noticed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("north", "NORTH "):
        table_of(tmp_path / f"{name}.csv")
    assert status(["check", str(tmp_path), "--json", str(tmp_path / "check.json")]) == 0
    notices = json.loads((tmp_path / "check.json").read_text())["notices"]
    assert any("'NORTH ' and 'north'" in notice and "in one file" in notice for notice in notices)
    capsys.readouterr()
