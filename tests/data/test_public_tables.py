"""The survey of small tables with the structure of public ones: docs/background/public-tables.md has the files."""

from __future__ import annotations

import csv
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from raydr.data.files.dialect import Dialect
from raydr.data.loading import load
from raydr.data.site import SiteFile, laid_out
from raydr.data.survey.categories import kind_of_numbers
from raydr.data.survey.codebook import Codebook, ColumnSettings
from raydr.data.survey.scales import in_order, ordered
from raydr.errors import DataError
from raydr.front.columns import survey_as_json
from raydr.front.own_data import own_rows

ROWS = 60


def cycled(*cells: Any) -> list[Any]:
    return [cells[row % len(cells)] for row in range(ROWS)]


def write_table(path: Path, columns: dict[str, list[Any]]) -> Path:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([list(columns), *zip(*columns.values(), strict=True)])
    return path


def surveyed(path: Path) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """Return the record of each column, by its name, and the notices."""
    own, client_data = own_rows(
        path,
        site=None,
        label=None,
        codebook=None,
        method=None,
        overrides=None,
        site_needed=False,
        progress=lambda done, total: None,
    )
    content = survey_as_json(own.scenario, client_data)
    return {column["name"]: column for column in content["columns"]}, content["notices"]


COLUMNS: dict[str, tuple[list[Any], str, str]] = {
    # name: cells, kind or a part of the reason, a part of its notice
    "age": ([31.5 + row * 7 % 40 for row in range(ROWS)], "number", ""),
    "patient_id": ([100 + row // 3 for row in range(ROWS)], "an identity", ""),
    "StoreID": (cycled(3, 5, 9), "an identity", ""),
    "nr": ([row // 4 for row in range(ROWS)], "an identity", ""),
    "subject": ([f"{100 + row // 3}{'a' if row > 57 else ''}" for row in range(ROWS)], "an identity", ""),
    "ID": (cycled("X03", "X04", "Y11"), "an identity", ""),
    "race": (cycled(1, 2, 3), "words", "named like categories"),
    "arm": (cycled(0, 1), "number", ""),
    "cowcode2": (list(range(ROWS)), "codes by its name", ""),
    "county": (cycled("01", "09", "23"), "words", ""),
    "start_day": (cycled("01", "09", "23"), "number", "a few small whole numbers"),
    "mechanism": (cycled("None", "Some", "Marked"), "ordinal", "None < Some < Marked"),
    "opinion": (cycled("StronglyAgree", "Disagree", "Agree"), "ordinal", "Disagree < Agree < StronglyAgree"),
    "dose": (cycled("0-39g/day", "40-79", "80-119", "120+"), "ordinal", "40-79 < 80-119 < 120+"),
    "mnth": (cycled("Jan", "March", "Sept", "Oct"), "circular", "circular"),
    "rownames": ([*range(ROWS - 1), 99], "an identity", ""),
    "size": (cycled("XL", "S", "M", "XXL", "L"), "ordinal", "S < M < L < XL < XXL"),
    "medal": (cycled("gold", "bronze", "silver"), "ordinal", "bronze < silver < gold"),
    "schooling": (cycled("Master", "Below_College", "Doctor"), "ordinal", "Below_College < Master < Doctor"),
    "month": (cycled("April", "January"), "circular", "circular"),
    "WindDir9am": (cycled("N", "E", "NE"), "circular", "N < NE < E < SE < S < SW < W < NW"),
    "gusts": (
        cycled("north", "nne", "south-east"),
        "circular",
        "north < nne < ne < ene < e < ese < south-east",
    ),
    "coast": (cycled("north", "east", "west"), "words", ""),
    "travel": (
        cycled("Travel_Often", "Non-Travel", "Travel_Rarely"),
        "ordinal",
        "Non-Travel < Travel_Rarely",
    ),
    "employed": (cycled("10+ years", "< 1 year", "2 years"), "ordinal", "< 1 year < 2 years < 10+ years"),
    "emp": (cycled("emp_ge_10", "emp_1", "emp_2", "emp_unk"), "ordinal", "emp_1 < emp_2 < emp_ge_10."),
    "balance": (cycled("Best", "Bad", "Better"), "ordinal", "Bad < Better < Best"),
    "phase": (cycled("C", "D", "E", "F"), "words", "can have an order"),
    "tension": (cycled("H", "L", "M"), "words", "can have an order"),
    "truck": (cycled("Small", "Compact", "Large"), "words", "can have an order"),
    "schooling_level": (cycled("PS", "P", "S"), "words", "can have an order"),
    "line": (cycled("area_408", "area_415", "area_510", "other"), "words", "can have an order"),
    "Department": (cycled("A", "B", "C"), "words", ""),
    "form": (cycled("F0", "F1", "F2"), "words", "can have an order"),
    "grade": (cycled("I", "II", "III"), "words", "can have an order"),
    "tumour": (cycled("2. Glioma", "1. Other", "3. None"), "words", "can have an order"),
    "cut": (cycled("Fair", "Ideal", "Good"), "words", "can have an order"),
    "colour": (cycled("red", "blue", "green"), "words", ""),
    "quarter": (cycled("1974Q1", "1974Q2", "Q32010"), "dates", ""),
    "listed": (cycled("Aug 1 2004", "12 March 1999", "Oct 2001"), "dates", ""),
    "remark": (cycled("Not enough blood for the test.", "Nest was never seen in full.", ""), "free text", ""),
    "tst": (cycled(*(f"{row // 2:02}{row % 2 * 3}0" for row in range(9, 25))), "time", "a time of day"),
    "dept": (cycled("0100", "0430", "0800"), "words", "four digits that can be times"),
    "ward": (cycled(*(f"{row // 2:02}{row % 2 * 3}0" for row in range(9, 25))), "words", ""),
    "depth": ([3 + row % 30 * 41 % 1200 for row in range(ROWS)], "number", ""),
    "dep_time": ([100 * (row * 7 % 24) + row * 11 % 60 for row in range(ROWS)], "number", "the unit hhmm"),
    "yymm": ([1500 + 100 * (row % 9) + row * 7 % 12 for row in range(ROWS)], "number", ""),
    "symptoms": (cycled("fever", "fever, cough", "cough, pain"), "list", "separated by commas"),
    "place": (cycled("Boston, MA", "Salem, MA", "Boston, TX"), "words", ""),
    "lot": (cycled("01", "07", "12", "104"), "number", "a leading zero such as 07"),
    "pin": (cycled("07", "7", "12"), "number", "a leading zero such as 07"),
    "tree": ([row // 3 * 7 % 20 for row in range(ROWS)], "number", "stand in rows next to each other"),
    "peak_hour": ([row % 24 for row in range(ROWS)], "circular", "period 24"),
    "loan_month": (cycled(2, 5, 11), "number", "named like a circle"),
    "income": (
        cycled("under $11k", "$25-$50k", ">$50k", "$11-$25k"),
        "ordinal",
        "under $11k < $11-$25k < $25-$50k",
    ),
    "budget": (
        cycled("lt $1,000", "$1,000 to 2,999", "$3000 or more"),
        "ordinal",
        "lt $1,000 < $1,000 to 2,999",
    ),
    "guidelines": ([row % 2 for row in range(ROWS - 2)] + [666, 666], "number", "a code for missing"),
    "reviews": ([1 + row % 20 for row in range(ROWS - 2)] + [88, 99], "number", "a code for missing"),
    "built": (cycled("1960-64", "1970-74", "1965-69"), "ordinal", "1960-64 < 1965-69 < 1970-74"),
    "length": (cycled(">50 mm", "<=20 mm", ">20-50 mm"), "ordinal", "<=20 mm < >20-50 mm < >50 mm"),
    "engine": (cycled("1.5-2l", "<1l", "1-1.5l"), "ordinal", "<1l < 1-1.5l < 1.5-2l"),
    "degree": (cycled("hs", "some college", "hs drop out"), "ordinal", "hs drop out < hs < some college"),
    "minimum": (cycled("none", "some", *range(1, 12)), "words", "numbers and words"),
    "set": ([float(row // 3 * 7 % 20) for row in range(ROWS)], "number", "stand in rows next to each other"),
    "icd9": (cycled(420.0, 163.0, 162.0), "words", "named like categories"),
    "injtype": (cycled(1, 2, 3), "words", "named like categories"),
    "run_time": (cycled("1h 40m", "45m", "2h", "2h 5m"), "durations", ""),
    "sno.": (list(range(ROWS)), "an identity", ""),
    "year": ([1990 + row * 7 % 35 for row in range(ROWS)], "number", "mapped as a quantity"),
    "years_of_schooling": (cycled(8.5, 9, 11, 12.5), "number", ""),
    "admission_date": ([43_000 + row * 31 % 1900 for row in range(ROWS)], "number", "days of a spreadsheet"),
    "status": (cycled(1, 2), "number", "named like a class"),
    "earnings": ([900, 1200.5, 1100, -999] * 15, "number", "a code for missing"),
}


def test_each_kind_of_column_is_read_or_doubted(tmp_path: Path) -> None:
    found, notices = surveyed(
        write_table(tmp_path / "t.csv", {name: each[0] for name, each in COLUMNS.items()})
    )
    for name, (_, expected, doubt) in COLUMNS.items():
        own = [notice for notice in notices if f"'{name}'" in notice]
        kind, reason = found[name]["kind"], found[name]["reason"]
        assert kind == expected if kind else expected in reason, name
        assert any(doubt in notice for notice in own) if doubt else not own, (name, own)
    assert found["race"]["words"] == ("1", "2", "3")
    assert found["status"]["looks_like"] == "class"


def test_few_rows_show_no_numbering() -> None:
    few, many = np.array([126.0, 908.0, 913.0]), np.arange(20.0) ** 2
    assert [kind_of_numbers("cancer_no", each) for each in (few, many)] == ["number", "numbering"]
    assert kind_of_numbers("case_no", np.array([3.0, 1.0, 2.0])) == "numbering"


@pytest.mark.parametrize(
    "words", [["10-20", "15-30", "40+"], ["4", "6", "8"], ["1-2", "x", "3-4"], ["2 kg", "3 kg", "4 kg"]]
)
def test_ranges_that_overlap_or_are_none_have_no_order(words: list[str]) -> None:
    assert in_order(words) is None


def test_ranges_without_an_end_are_in_order() -> None:
    assert in_order(["65+", "18-64", "<18"]) == ("<18", "18-64", "65+")
    schooling = ["9-11years", "12years", "13-15years", "16years", ">16years"]
    assert in_order(sorted(schooling)) == tuple(schooling)


def test_months_are_spelt_as_in_the_column() -> None:
    found = ordered("month", ["June", "Apr", "Sept"])
    assert found is not None
    assert found.words[3:9] == ("Apr", "May", "June", "July", "August", "Sept")
    assert ordered("month", ["Jun", "June", "May"]) is None


def test_leading_zero_is_found_in_any_row(tmp_path: Path) -> None:
    rows = [f"{10000 + row % 3},{row % 7}" for row in range(900)]
    path = tmp_path / "zip.csv"
    path.write_text("\n".join(["area,x", *rows, *["00501,1"] * 9]) + "\n")
    assert surveyed(path)[0]["area"]["words"] == ("00501", "10000", "10001", "10002")
    found = list(Dialect.of(path).lines_with(path, re.compile(rb"[\n,]0050\d,")))
    assert found == ["00501,1"] * 9


@pytest.mark.parametrize(("last", "kind"), [("07", "words"), ("104", "number")])
def test_two_digits_with_a_late_leading_zero_are_codes_or_doubted(
    tmp_path: Path, last: str, kind: str
) -> None:
    rows = [f"{10 + row % 3},{row % 7}" for row in range(900)]
    path = tmp_path / "t.csv"
    path.write_text("\n".join(["area,x", *rows, *["07,1"] * 9, f"{last},2"]) + "\n")
    found, notices = surveyed(path)
    assert found["area"]["kind"] == kind
    assert any("a leading zero such as 07" in notice for notice in notices) is (kind == "number")
    known = load(path=path, codebook=Codebook((ColumnSettings(column="area", kind="number"),)))
    assert not known.doubts, "the kind is given"


@pytest.mark.parametrize("title", ["Ward 3, spring, final", "Ward 3, a, b, c, d, e", "Ward 3"])
def test_title_with_commas_does_not_decide_the_separator(tmp_path: Path, title: str) -> None:
    path = tmp_path / "t.csv"
    rows = [f"{row},5;2{row},1;f" for row in range(9)]
    path.write_text("\n".join([title, "age;bmi;sex", *rows]) + "\n")
    dialect = Dialect.of(path)
    assert (dialect.separator, dialect.decimal, dialect.header.line) == (";", ",", 2)


def test_times_without_a_colon_are_hours_of_a_codebook(tmp_path: Path) -> None:
    cells = [430, 1545, 5, 2359]
    path = write_table(tmp_path / "t.csv", {"dep_time": cells, "x": [1, 2, 3, 4]})
    row = ColumnSettings(column="dep_time", kind="time", unit="hhmm")
    read = load(path=path, codebook=Codebook((row,))).rows
    angle = 2 * np.pi * np.array([4.5, 15.75, 5 / 60, 23 + 59 / 60]) / 24
    np.testing.assert_allclose(read[:, :2], np.stack([np.sin(angle), np.cos(angle)], axis=1), atol=1e-6)
    with pytest.raises(DataError, match="'1260' on line 2"):
        load(path=write_table(path, {"dep_time": [1260, *cells[1:]], "x": cells}), codebook=Codebook((row,)))
    with pytest.raises(ValueError, match="empty or hhmm"):
        ColumnSettings(column="dep_time", kind="time", unit="hours")


def test_sites_agree_on_times_without_a_colon(tmp_path: Path) -> None:
    many = [f"{row // 2:02}{row % 2 * 3}0" for row in range(8, 28)] * 5
    cells = [many, [f"{text[:2]}:{text[2:]}" for text in many], ["0430", "0500"] * 50]
    files = [
        SiteFile(
            path=str(write_table(tmp_path / f"{site}.csv", {"t": own, "x": list(range(100))})),
            categories="one-hot",
        )
        for site, own in enumerate(cells)
    ]
    clock = laid_out(files[0], [file.survey() for file in files[:2]])
    assert clock.codings["t"].unit == "hhmm"
    read = [load(path=file.path, layout=clock).rows for file in files]
    np.testing.assert_array_equal(read[0], read[1])
    assert laid_out(files[0], [files[0].survey(), files[2].survey()]).features[0] == "t=0430"


def test_sites_agree_on_codes(tmp_path: Path) -> None:
    """One site has two of the codes, and one writes them as 1.0."""
    cells = [[1, 2] * 10, [1, 2, 3, 1] * 5, ["1.0", "2.0", "3.0", ""] * 5]
    files = [
        SiteFile(
            path=str(write_table(tmp_path / f"{site}.csv", {"race": own, "x": list(range(20))})),
            categories="one-hot",
        )
        for site, own in enumerate(cells)
    ]
    layout = laid_out(files[0], [file.survey() for file in files])
    assert layout.features == ("race=1", "race=2", "race=3", "x")
    rows = [load(path=file.path, layout=layout, missing="mean").rows[:, :3] for file in files]
    np.testing.assert_array_equal([np.nansum(each) for each in rows], [20, 20, 15])
    two = laid_out(files[0], [files[0].survey()])
    assert two.features == ("race", "x")
