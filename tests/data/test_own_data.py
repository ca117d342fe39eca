"""`raydr map` on a user's table: detected settings, notices, and the stored scenario."""

from __future__ import annotations

import gzip
import json
import re
import subprocess
import sys
import types
import webbrowser
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.parquet as pq
import pytest
import yaml

import raydr
from raydr.data import load, loading
from raydr.data.files.dialect import Dialect
from raydr.errors import DataError, ScenarioError
from raydr.front.cli import status
from raydr.front.own_data import commented, is_data, own_data
from raydr.scenarios.schema.reading import read

QUICK = {"runtime.federation": "inline", "method.rounds": 1, "method.landmarks": 8, "method.epochs": 5,
         "metrics": ["npa_10"], "compare": []}  # fmt: skip
SET = [part for key, value in QUICK.items() for part in ("--set", f"{key}={json.dumps(value)}")]
HEADER = "hospital,patient_id,age,bmi,smoker,admitted,diagnosis"


def lines(rows: int = 60) -> list[str]:
    """Write a table with an identity, text, dates and missing values."""
    random = np.random.default_rng(0)
    table = [HEADER]
    for row in range(rows):
        bmi = "" if row % 7 == 0 else f"{random.normal(27, 4):.1f}"
        table.append(
            f"{('north', 'east', 'west')[row % 3]},{row + 100},{random.integers(20, 90)},{bmi},"
            f"{('yes', 'no', 'former')[row // 3 % 3]},{row % 28 + 1:02}.03.2024,{('ill', 'well')[row % 2]}"
        )
    return table


@pytest.fixture
def patients(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "patients.csv").write_text("\n".join(lines()) + "\n")
    return tmp_path / "patients.csv"


@pytest.fixture
def sites(patients: Path) -> Path:
    """Write a folder with a file per hospital and one file that is no table."""
    folder = patients.parent / "sites"
    folder.mkdir()
    header, *rows = lines()
    for name in ("east", "north", "west"):
        own = [row for row in rows if row.startswith(name)]
        (folder / f"{name}.csv").write_text("\n".join([header, *own]) + "\n")
    (folder / "README.txt").write_text("not a table")
    (folder / ".hidden.csv").write_text("x\n1\n")
    return folder


def message(own: Any) -> dict[str, str]:
    return {fact.name: fact.text for fact in own.facts}


MAPPED = "5: age, bmi, smoker=former, smoker=no, smoker=yes"


def test_table_settings_are_detected(patients: Path) -> None:
    own = own_data(patients, site="hospital", label="diagnosis")
    facts = message(own)
    assert facts["Sites"] == "3, by column hospital: east 20, north 20, west 20"
    assert facts["Label"] == "diagnosis: ill 30, well 30"
    assert facts["Columns mapped"] == MAPPED
    assert facts["Text as zeros and ones"] == "smoker (former, no, yes)"
    assert facts["Columns left out"] == (
        "diagnosis (the label), hospital (the client), patient_id (an identity"
        " by its name), admitted (dates or times)"
    )
    assert facts["Missing values filled in"] == (
        "9 by the median of all clients: bmi 9 (east 3, north 3, west 3)"
    )
    assert own.content["data"] == {
        "path": str(patients), "label": "diagnosis", "scale": "standard", "missing": "median", "categories": "one-hot",
    }  # fmt: skip
    assert own.scenario == read(dict(own.content))


def test_complete_table_is_not_filled(patients: Path) -> None:
    own = own_data(patients, site="hospital", overrides={"data.features": ["age", "smoker"]})
    assert "missing" not in own.content["data"]
    assert "Missing values filled in" not in message(own)
    kept = own_data(patients, site="hospital", overrides={"data.features": ["age"], "data.missing": "mean"})
    assert kept.scenario.data.missing == "mean"


def test_overrides_come_last(patients: Path) -> None:
    overrides = {
        "method.kind": "fed-tsne",
        "data.scale": "minmax",
        "clients": {"count": 4},
        "data.id": "patient_id",
    }
    own = own_data(patients, overrides=overrides)
    assert (own.scenario.method.kind, own.scenario.data.scale) == ("fed-tsne", "minmax")
    assert message(own)["Sites"].startswith("4, by partition iid: ")
    # With a random partition, the hospital is an ordinary column.
    assert "hospital (east, north, west)" in message(own)["Text as zeros and ones"]


@pytest.mark.parametrize("how", ["folder", "pattern"])
def test_site_files_are_not_copied(sites: Path, how: str) -> None:
    data = str(sites) if how == "folder" else str(sites / "*.csv")
    own = own_data(data, label="diagnosis")
    assert [site.path for site in own.scenario.clients.sites] == [
        str(sites / f"{name}.csv") for name in ("east", "north", "west")
    ]
    facts = message(own)
    assert facts["Sites"] == "3, one file each: east 20, north 20, west 20"
    assert facts["Columns mapped"] == MAPPED
    assert "hospital (one word in all rows of each site: it names the site," in facts["Columns left out"]


def test_map_of_a_folder_equals_map_of_the_table(patients: Path, sites: Path) -> None:
    one = raydr.map(patients, site="hospital", label="diagnosis", out="one", **dunder(QUICK))
    other = raydr.map(sites, label="diagnosis", out="other", **dunder(QUICK))
    maps = [
        pq.read_table(run.folder / "embedding.parquet").select(["client", "x", "y"]) for run in (one, other)
    ]
    rows = sorted(maps[0].to_pylist(), key=lambda row: row["client"])
    assert rows == maps[1].to_pylist()


def dunder(keys: dict[str, Any]) -> dict[str, Any]:
    return {key.replace(".", "__"): value for key, value in keys.items()}


def test_stored_scenario_repeats_the_run(patients: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["map", "patients.csv", "--label", "diagnosis", "--out", "one", *SET]
    assert status(arguments) == 0  # the column is called hospital, so --site can be left out
    out, err = capsys.readouterr()
    assert out.strip() == str(Path("one").resolve() / "report.html")
    assert "Sites: 3, by column hospital: east 20, north 20, west 20" in err
    assert not re.findall("Columns mapped|Rows read|Scaling|SHA-256", err), "all of these need --verbose"
    assert status(["run", "one/scenario.yaml", "--out", "two", "--quiet"]) == 0
    for name in ("embedding.parquet", "ledger.json", "data.json", "scenario.yaml"):
        assert Path("one", name).read_bytes() == Path("two", name).read_bytes()


def test_page_is_opened_after_it_is_written(patients: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []

    def look(url: str) -> bool:
        assert Path("run/report.html").is_file()
        opened.append(url)
        return True

    monkeypatch.setattr(webbrowser, "open", look)
    assert status(["map", "patients.csv", "--out", "run", "--quiet", "--open", *SET]) == 0
    assert opened == [Path("run/report.html").resolve().as_uri()]


REFUSED: dict[str, tuple[list[str], str]] = {
    "site": (
        ["patients.csv", "--site", "hopsital"],
        "'hopsital', which --site names (did you mean hospital?)",
    ),
    "label": (["patients.csv", "--label", "diagnosys"], "which --label names (did you mean diagnosis?)"),
    "method": (["patients.csv", "--method", "fed-umpa"], "fed-umap"),
    "key": (["patients.csv", "--set", "data.scal=none"], "data.scal is not a key (did you mean scale?)"),
    "file": (["patient.csv", "--site", "hospital"], "cannot be opened"),
    "folder": ([".", "--site", "hospital"], "each file is one site"),
    "pattern": (["nowhere/*.csv"], "has no file that raydr can read"),
    "twice": (
        ["patients.csv", "--site", "hospital", "--set", "clients.count=3"],
        "clients.count is set as well",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_unusable_data_are_one_paragraph(
    patients: Path, capsys: pytest.CaptureFixture[str], case: str
) -> None:
    arguments, reason = REFUSED[case]
    assert status(["map", *arguments, "--out", "run"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert reason in err.replace("\n", " ")
    assert not Path("run").exists()


def test_site_of_a_row_is_not_guessed(patients: Path) -> None:
    patients.write_text(patients.read_text().replace("hospital,", "ward,", 1))
    with pytest.raises(DataError, match="Columns that could name the site: 'ward', 'smoker'"):
        own_data(patients, label="diagnosis")


def test_check_reads_everything_and_starts_nothing(
    patients: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(Path().iterdir())
    assert status(["check", "patients.csv", "--label", "diagnosis"]) == 0
    out, _ = capsys.readouterr()
    assert f"Columns mapped: {MAPPED}" in out
    (patients.parent / "s.yaml").write_text(
        yaml.safe_dump(
            {
                "name": "s",
                "data": {"path": "patients.csv", "label": "diagnosis"},
                "clients": {"partition": {"kind": "by-column", "column": "hospital"}},
                "method": {"kind": "fed-umap"},
            }
        )
    )
    assert status(["check", "s.yaml"]) == 2  # like a run
    assert "the feature column 'smoker' is not numeric" in capsys.readouterr().err.replace("\n", " ")
    changed = ["--set", "data.categories=leave-out", "--set", "data.missing=drop"]
    assert status(["check", "s.yaml", *changed]) == 0
    assert "Rows mapped: 51" in capsys.readouterr().out
    assert status(["check", "s.yaml", "--site", "hospital"]) == 2
    assert sorted(Path().iterdir()) == [*before, patients.parent / "s.yaml"] or {
        p.name for p in Path().iterdir()
    } == {
        "patients.csv",
        "s.yaml",
    }


def test_check_needs_no_site(patients: Path, capsys: pytest.CaptureFixture[str]) -> None:
    patients.write_text(patients.read_text().replace("hospital,", "ward,", 1))
    assert status(["check", "patients.csv"]) == 0
    said = capsys.readouterr().out
    assert "Site of each row: no column names it, so `raydr map` needs `--site COLUMN`" in said
    assert "Sites: 3, by partition iid" in said
    assert status(["check", "patients.csv", "--site", "ward"]) == 0
    assert "Site of each row" not in capsys.readouterr().out


def test_init_writes_the_scenario_of_map(patients: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["init", "patients.csv", "--label", "diagnosis"]
    assert status(arguments) == 0
    assert capsys.readouterr().out.strip() == "patients.yaml"
    text = Path("patients.yaml").read_text()
    assert f"# Columns mapped: {MAPPED}\n" in text
    own = own_data("patients.csv", label="diagnosis")
    assert text == commented(own)
    assert "\n# show: [COLUMN]" in text, "only the user can choose the columns that the page shows"
    assert read("patients.yaml") == own.scenario
    assert status(arguments) == 2
    assert "already exists and was not changed" in capsys.readouterr().err
    assert status([*arguments, "--out", "other.yaml"]) == 0


def test_table_changed_during_the_run_is_reported(
    patients: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from raydr.scenarios import runner

    settled = runner.run

    def changing(*arguments: Any, **named: Any) -> Path:
        Path("patients.csv").write_text("\n".join(lines(59)) + "\n")
        return settled(*arguments, **named)

    arguments = ["map", "patients.csv", "--label", "diagnosis", "--quiet", *SET]
    assert status([*arguments, "--out", "still"]) == 0
    assert "changed" not in capsys.readouterr().err
    monkeypatch.setattr(runner, "run", changing)
    assert status([*arguments, "--out", "moved"]) == 0
    assert "raydr: patients.csv changed during the run." in capsys.readouterr().err


def test_table_changed_while_reading_is_refused(patients: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settled = loading.read_file

    def changing(*arguments: Any, **named: Any) -> Any:
        columns = settled(*arguments, **named)
        Path("patients.csv").write_text("a,b\n1,2\n")
        return columns

    monkeypatch.setattr(loading, "read_file", changing)
    with pytest.raises(DataError, match="changed while it was read"):
        loading.load(path="patients.csv", label="diagnosis", categories="one-hot", missing="median")


def test_column_names_cannot_end_a_yaml_comment(tmp_path: Path) -> None:
    path = tmp_path / "odd.csv"
    path.write_text('site,"a\nseed: 7",b\nx,1,2\ny,3,4\nx,2,5\ny,9,1\n')
    (tmp_path / "odd.yaml").write_text(commented(own_data(path)))
    assert read(tmp_path / "odd.yaml").seed == 0


def test_data_and_scenarios_are_distinguished(sites: Path) -> None:
    assert is_data("x.csv.gz")
    assert is_data(sites)
    assert is_data("data/*.parquet")
    assert not is_data("x.yaml")
    assert not is_data("digits-fed-tsne")
    (sites / "scenario.yaml").write_text("name: a run's folder")
    assert not is_data(sites)


WRITTEN: dict[str, tuple[str, bytes, str]] = {
    "tabs": ("x.tsv", b"a\tb\tk\n1\t2.5\tu\n3\t4\tv\n", "separated by tabs"),
    "bars": ("x.csv", b"a|b|k\n1|2.5|u\n3|4|v\n", "separated by bars"),
    "gzip": ("x.csv.gz", gzip.compress(b"a,b,k\n1,2.5,u\n3,4,v\n"), "separated by commas, packed by gzip"),
    "commas": (
        "x.csv", b"a;b;k\n1;2,5;u\n3;4;v\n", "separated by semicolons, with decimal commas",
    ),
    "cp1252": ("x.csv", "a,b,k\n1,2.5,u\n3,4,vé\n".encode("cp1252"), "separated by commas, in cp1252"),
    "utf-16": ("x.csv", "a,b,k\n1,2.5,u\n3,4,vé\n".encode("utf-16"), "separated by commas, in UTF-16"),
    "utf-8": ("x.csv", "\ufeffa,b,k\n1,2.5,u\n3,4,vé\n".encode(), "separated by commas"),
}  # fmt: skip


@pytest.mark.parametrize("how", WRITTEN)
def test_every_table_format_is_read_equally(tmp_path: Path, how: str) -> None:
    name, content, words = WRITTEN[how]
    (tmp_path / name).write_bytes(content)
    table = load(path=tmp_path / name, label="k")
    assert table.features == ("a", "b")
    np.testing.assert_array_equal(table.rows, [[1, 2.5], [3, 4]])
    assert str(Dialect.of(tmp_path / name)) == words
    assert table.label_names == ("u", "vé" if "é" in content.decode(errors="ignore") or how in ("cp1252", "utf-16")
                                 else "v")  # fmt: skip


def test_thousands_separator_is_not_a_decimal_point(tmp_path: Path) -> None:
    """With 1,234.5 and 2,5 in one column the comma is ambiguous, so the cell is refused."""
    (tmp_path / "x.csv").write_text("a;b\n1,5;2.5\n3;4\n")
    with pytest.raises(DataError, match="holds '1,5' on line 2"):
        load(path=tmp_path / "x.csv")


def test_truncated_gzip_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.csv.gz").write_bytes(gzip.compress(b"a,b\n1,2\n" * 1000)[:-20])
    with pytest.raises(DataError, match="cannot be unpacked by gzip"):
        load(path=tmp_path / "x.csv.gz")
    (tmp_path / "y.csv.gz").write_bytes(b"a,b\n1,2\n")
    with pytest.raises(DataError, match="cannot be unpacked by gzip"):
        load(path=tmp_path / "y.csv.gz")


def test_error_names_the_line_of_a_gzip_file(tmp_path: Path) -> None:
    (tmp_path / "x.csv.gz").write_bytes(gzip.compress(b"a,b\n\n1,2\n3,x\n"))
    with pytest.raises(DataError, match="holds 'x' on line 4"):
        load(path=tmp_path / "x.csv.gz")


def test_npz_file_can_name_sites(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    rows = random.normal(size=(40, 3))
    rows[3, 1] = np.nan
    np.savez(tmp_path / "x.npz", X=rows, y=np.arange(40) % 2, client=np.arange(40) % 4)
    own = own_data(tmp_path / "x.npz")
    assert message(own)["Sites"] == "4, by column client: 0 10, 1 10, 2 10, 3 10"
    assert own.scenario.data.missing == "median"
    assert message(own)["Label"].startswith("the data's own: 0 20, 1 20")


def test_only_h5ad_files_have_a_matrix_setting(patients: Path) -> None:
    with pytest.raises(DataError, match=r"data\.matrix names a matrix of an \.h5ad file"):
        own_data(patients, site="hospital", overrides={"data.matrix": "X"})


def test_h5ad_without_its_package_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "x.h5ad").write_bytes(b"not looked at")
    monkeypatch.setitem(sys.modules, "anndata", None)
    with pytest.raises(DataError, match=r"pip install 'raydr\[anndata\]'"):
        load(path=tmp_path / "x.h5ad")


class TestAnnotatedMatrices:
    @pytest.fixture
    def cells(self, tmp_path: Path) -> Path:
        anndata = pytest.importorskip("anndata")
        import pandas
        from scipy import sparse

        counts = np.arange(12, dtype=np.float32).reshape(4, 3)
        donors, kinds, cells, genes = (
            pandas.Index(names, dtype=object)  # which every version writes
            for names in (["d1", "d2", "d1", "d2"], ["T", "B", None, "T"], list("abcd"), ["g1", "g2", "g3"])
        )
        content = anndata.AnnData(
            X=sparse.csr_matrix(counts),
            obs=pandas.DataFrame(
                {"donor": pandas.Categorical(donors), "kind": pandas.Categorical(kinds)}, index=cells
            ),
            var=pandas.DataFrame(index=genes),
            layers={"log": np.log1p(counts)},
            obsm={"X_pca": counts[:, :2] * 10},
        )
        content.write_h5ad(tmp_path / "cells.h5ad")
        return tmp_path / "cells.h5ad"

    def test_every_matrix_can_be_mapped(self, cells: Path) -> None:
        counts = np.arange(12, dtype=np.float32).reshape(4, 3)
        table = load(path=cells, client="donor", id_column="obs_names")
        assert table.features == ("g1", "g2", "g3")
        assert table.client_names == ("d1", "d2")
        assert table.ids.tolist() == ["a", "b", "c", "d"]
        np.testing.assert_array_equal(table.rows, counts)
        np.testing.assert_array_equal(load(path=cells, matrix="layers/log").rows, np.log1p(counts))
        reduced = load(path=cells, matrix="obsm/X_pca")
        assert reduced.features == ("X_pca0", "X_pca1")
        np.testing.assert_array_equal(reduced.rows, counts[:, :2] * 10)
        with pytest.raises(DataError, match=r"did you mean obsm/X_pca\?"):
            load(path=cells, matrix="obsm/pca")

    def test_missing_label_stays_missing(self, cells: Path) -> None:
        with pytest.raises(DataError, match="1 missing value in the column 'kind'"):
            load(path=cells, label="kind")

    def test_donor_column_gives_sites(self, cells: Path) -> None:
        own = own_data(cells, site="donor", overrides={"data.matrix": "layers/log"})
        assert message(own)["Sites"] == "2, by column donor: d1 2, d2 2"
        assert own.scenario.data.matrix == "layers/log"

    def test_invalid_h5ad_files_are_refused(self, cells: Path) -> None:
        cells.write_bytes(b"PK junk")
        with pytest.raises(DataError, match=r"cannot be read as an \.h5ad file"):
            load(path=cells)


def test_anndata_errors_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = types.ModuleType("anndata")
    fake.__spec__ = ModuleSpec("anndata", None)

    def read_h5ad(path: Path) -> Any:
        raise KeyError("no group X")

    fake.read_h5ad = read_h5ad  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "anndata", fake)
    pytest.importorskip("h5py").File(tmp_path / "x.h5ad", "w").close()
    with pytest.raises(DataError, match="no group X"):
        load(path=tmp_path / "x.h5ad")


def test_unknown_key_is_refused(patients: Path) -> None:
    with pytest.raises(ScenarioError, match=r"privacy\.strict"):
        own_data(patients, overrides={"privacy.strict": True})


@pytest.mark.slow
@pytest.mark.parametrize("what", ["check", "map"])
def test_large_table_needs_less_than_four_times_its_file_size(what: str, tmp_path: Path) -> None:
    """The file has 200 MB of numbers with all digits."""
    random = np.random.default_rng(0)
    rows, path = 220_000, tmp_path / "large.csv"
    columns = {"hospital": np.array(["a", "b", "c"])[random.integers(0, 3, rows)]}
    columns |= {f"f{number}": random.normal(size=rows) for number in range(50)}
    arrow_csv.write_csv(pa.table(columns), path)
    assert path.stat().st_size > 190e6
    commands = {
        "check": f"check {path}".split(),
        "map": f"map {path} --method fed-pca --inline --out {tmp_path}/run --set compare=[] --set metrics=[sc]".split(),
    }
    code = """
import sys
from raydr.front.cli import main
from raydr.memory import peak_memory_bytes
try:
    main()
finally:
    print(peak_memory_bytes(), file=sys.stderr)
"""
    done = subprocess.run(
        [sys.executable, "-c", code, *commands[what]], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stderr.split()[-1]) < 4 * path.stat().st_size


def test_many_numbers_as_label_are_a_quantity(patients: Path) -> None:
    facts = {fact.name: fact.text for fact in own_data(patients, site="hospital", label="bmi").facts}
    assert re.fullmatch(
        r"bmi: a quantity from [\d.]+ to [\d.]+, so the map is coloured by its values", facts["Label"]
    )
    facts = {fact.name: fact.text for fact in own_data(patients, site="hospital", label="smoker").facts}
    assert facts["Label"] == "smoker: former 18, no 21, yes 21"
