"""Text tables as people export them: numbers with units, other headers, totals, and words for missing values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raydr.data import Alike, Layout, Table, blocks_alike, load, load_alike
from raydr.data.files.header import find_header, looks_like_row
from raydr.data.site import SiteFile, laid_out
from raydr.data.survey.written_numbers import writing_of
from raydr.errors import DataError
from raydr.front.own_data import own_data


def table(folder: Path, text: str, name: str = "table.csv", **settings: Any) -> Table:
    """Write a file and read it as `raydr map` does."""
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return load(path=path, **({"categories": "one-hot", "missing": "median"} | settings))


def column_of(cells: list[str], name: str = "x") -> str:
    """Return a table, separated by semicolons, of a column of cells and a column of other numbers."""
    return f"{name};other\n" + "".join(f"{cell};{place}\n" for place, cell in enumerate(cells))


@pytest.mark.parametrize(
    ("cells", "numbers", "unit"),
    [
        (["72.3 kg", "80 kg", "?"], [72.3, 80, np.nan], "kg"),
        (["$51,234", "$980", "-$3.50"], [51234, 980, -3.5], "$"),
        (["12,50 \u20ac", "3 \u20ac", "1.200 \u20ac"], [12.5, 3, 1200], "\u20ac"),
        (["51\u00a0234", "980", "7\u202f000"], [51234, 980, 7000], ""),
        (["1'234.5", "980", "12"], [1234.5, 980, 12], ""),
        (["5.1%", "0%", "12 %"], [5.1, 0, 12], "%"),
        (["\u22123.2", "4", "1"], [-3.2, 4, 1], ""),
        (["120 mm Hg", "80 mm Hg", "unknown"], [120, 80, np.nan], "mm Hg"),
        (["1.234.567", "12", "."], [1234567, 12, np.nan], ""),
    ],
)
def test_numbers_are_read_as_they_are_spelt(
    tmp_path: Path, cells: list[str], numbers: list[float], unit: str
) -> None:
    found = table(tmp_path, column_of(cells * 3))
    assert found.features == ("x", "other")
    assert found.units == {"x": unit}
    np.testing.assert_array_equal(found.rows[:, 0], numbers * 3)


def test_points_are_thousands_next_to_decimal_commas(tmp_path: Path) -> None:
    cells = ["51.234;1,5", "48.120;2,25", "950;3,0"]
    found = table(tmp_path, "x;other\n" + "\n".join(cells))
    np.testing.assert_array_equal(found.rows, [[51234, 1.5], [48120, 2.25], [950, 3]])
    assert len(found.doubts) == 1
    assert "'x'" in found.doubts[0]
    assert "points for thousands" in found.doubts[0]


def test_each_column_has_its_own_decimal_mark(tmp_path: Path) -> None:
    found = table(tmp_path, "x;other\n1,5;0.123\n2,25;0.5\n3,0;7.25\n")
    np.testing.assert_array_equal(found.rows, [[1.5, 0.123], [2.25, 0.5], [3, 7.25]])
    assert found.doubts == ()


@given(st.lists(st.integers(-(10**9), 10**9), min_size=1, max_size=20), st.sampled_from([",", ".", " ", "'"]))
def test_grouped_whole_numbers_are_read_exactly(numbers: list[int], grouping: str) -> None:
    cells = [f"{number:,}".replace(",", grouping) for number in numbers]
    decimal = "," if grouping == "." else "."
    writing = writing_of(cells, decimal=decimal)
    assert writing is not None
    assert [writing.read(cell) for cell in cells] == numbers


@given(
    st.lists(st.floats(-1e6, 1e6).map(lambda x: round(x, 2)), min_size=1, max_size=20),
    st.sampled_from(["", " kg", "%", " mg/dl"]),
)
def test_two_decimals_with_a_unit_are_read_exactly(numbers: list[float], unit: str) -> None:
    for decimal in ".,":
        cells = [f"{number:.2f}{unit}".replace(".", decimal) for number in numbers]
        writing = writing_of(cells)
        assert writing is not None
        assert (writing.decimal, writing.unit, writing.certain) == (decimal, unit.strip(), True)
        assert [writing.read(cell) for cell in cells] == numbers


@pytest.mark.parametrize(
    "cells",
    [
        ["1st", "2nd"],
        ["3 kg", "3 lb"],
        ["12.03.2021"],
        ["120/80"],
        ["1,2,3"],
        ["A12"],
        ["1-2"],
        ["020 7946 0958"],
        ["?"],
    ],
)
def test_other_texts_are_no_numbers(cells: list[str]) -> None:
    assert writing_of(cells) is None


def test_pairs_are_two_columns_and_several_units_are_left_out(tmp_path: Path) -> None:
    rows = [f"{110 + n}/{60 + n};{50 + n / 10} {'kg' if n % 2 else 'lb'};{n}" for n in range(60)]
    found = table(tmp_path, "pressure;weight;other\n" + "\n".join(rows))
    assert found.features == ("pressure (first)", "pressure (second)", "other")
    assert found.rows[:, :2].tolist() == [[110 + n, 60 + n] for n in range(60)]
    assert any("'pressure': read as pair" in doubt for doubt in found.doubts)
    assert "different units" in found.read_from.left_out["weight"]


def test_words_for_missing_values_are_missing_among_words_and_numbers(tmp_path: Path) -> None:
    rows = [
        f"{['f', 'm', word][n % 3]};{word if n == 3 else n}"
        for n, word in enumerate(["?", "-", "Unknown", "NA"] * 9)
    ]
    found = table(tmp_path, "sex;age\n" + "\n".join(rows))
    assert found.features == ("sex=f", "sex=m", "age")
    assert np.isnan(found.rows).sum(axis=0).tolist() == [12, 12, 1]


def test_sites_with_different_units_are_refused(tmp_path: Path) -> None:
    for name, unit in (("a", "kg"), ("b", "lb")):
        (tmp_path / f"{name}.csv").write_text(column_of([f"{n} {unit}" for n in range(50, 60)], "weight"))
    files = [SiteFile(path=str(tmp_path / f"{name}.csv"), categories="one-hot") for name in "ab"]
    with pytest.raises(DataError, match=r"'weight' has the unit 'lb' in some files and 'kg' in others"):
        laid_out(files[0], [file.survey() for file in files])


def test_a_site_with_plain_numbers_is_refused_next_to_one_with_a_unit(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(column_of([f"{n} kg" for n in range(50, 60)], "weight"))
    (tmp_path / "b.csv").write_text(column_of([f"{n}" for n in range(50, 60)], "weight"))
    files = [SiteFile(path=str(tmp_path / f"{name}.csv"), categories="one-hot") for name in "ab"]
    with pytest.raises(DataError, match="no unit"):
        laid_out(files[0], [file.survey() for file in files])


def test_each_site_has_its_own_decimal_mark(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(column_of(["1,5", "1.200,25"]))
    (tmp_path / "b.csv").write_text(column_of(["1.5", "1200.25"]))
    files = [SiteFile(path=str(tmp_path / f"{name}.csv"), categories="one-hot") for name in "ab"]
    layout = laid_out(files[0], [file.survey() for file in files])
    for file in files:
        rows = load(path=file.path, layout=layout, missing="median").rows
        np.testing.assert_array_equal(rows[:, 0], [1.5, 1200.25])


@pytest.mark.parametrize(
    ("above", "notice"),
    [
        ("# exported 2026-01-02, by the registry\n# second\n", "lines 1 to 2 above the names"),
        ("Patients of 2026\n\n", "lines 1 to 2 above the names"),
        ("Patients of 2026,,\n", "line 1 above the names"),
    ],
)
def test_lines_above_the_header_are_not_read(tmp_path: Path, above: str, notice: str) -> None:
    rows = "".join(f"{n},{['f', 'm'][n % 2]},{n / 4}\n" for n in range(20))
    found = table(tmp_path, f"{above}age,sex,bmi\n{rows}")
    assert found.features == ("age", "sex=f", "sex=m", "bmi")
    assert len(found.rows) == 20
    assert notice in found.doubts[0]


def test_an_error_below_a_title_names_the_line_in_the_file(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="line 5"):
        table(tmp_path, "Patients\n\nage,bmi\n1,2\n3,inf\n4,5\n")


@pytest.mark.parametrize(
    "second",
    ["years,kg/m2,", "Response,Response,Response", ",Response,Response"],
    ids=["units", "words", "blank"],
)
def test_a_second_line_of_names_is_no_row(tmp_path: Path, second: str) -> None:
    middle = [f"{n},{n / 4 if second[0] != ',' else 'abc'[n % 3]},{'yn'[n % 2]}" for n in range(20)]
    found = table(tmp_path, f"age,bmi,smoker\n{second}\n" + "\n".join(middle) + "\n")
    assert len(found.rows) == 20
    assert found.rows[:, 0].tolist() == list(range(20))
    assert "line 2, which has further names or units" in found.doubts[0]


def test_a_first_row_with_gaps_or_a_typing_error_is_a_row(tmp_path: Path) -> None:
    rows = "".join(f"{n},{n / 4},{'yn'[n % 2]}\n" for n in range(20))
    assert len(table(tmp_path, f"age,bmi,smoker\n?,,y\n{rows}").rows) == 21
    with pytest.raises(DataError, match=r"'age'.*'4O' on line 2"):
        table(tmp_path, f"age,bmi,smoker\n4O,1,y\n{rows}")


@pytest.mark.parametrize(
    ("names", "row"),
    [
        (["63", "m", "145"], True),
        (["0", "1", "2"], False),
        (["country", "2019", "2020"], False),
        (["sex", "2019", "2020"], False),
        (["1.5", "f", "2"], True),
        (["sample", "400", "402.5"], False),
    ],
)
def test_a_first_patient_is_not_a_header(names: list[str], row: bool) -> None:
    rows = [["41", "f", "130"], ["57", "m", "120.5"], ["60", "f", "111"]]
    if names[0] in ("country", "sex", "sample"):
        rows = [[sex, age, bmi] for age, sex, bmi in rows]
    assert looks_like_row(names, rows) is row


def test_a_table_without_header_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no header"):
        table(tmp_path, "63,m,145\n" + "".join(f"{n},{'mf'[n % 2]},{n + 100}\n" for n in range(20)))


def test_repeated_names_are_numbered(tmp_path: Path) -> None:
    found = table(tmp_path, "pain,age,pain,pain.2\n1,2,3,4\n5,6,7,8\n")
    assert found.features == ("pain", "age", "pain.3", "pain.2")
    assert "'pain.3'" in found.doubts[0]


def test_an_index_without_a_name_is_no_feature(tmp_path: Path) -> None:
    found = table(tmp_path, ",age\n0,5\n1,6\n2,6\n")
    assert found.features == ("age",)
    assert "(no name)" in found.read_from.left_out


def test_a_total_and_blank_lines_are_no_rows(tmp_path: Path) -> None:
    rows = "".join(f"{'north' if n % 2 else 'south'},{n}\n" for n in range(20))
    found = table(tmp_path, f"site,age\n{rows},\n,\nTotal,190\n", client="site")
    assert len(found.rows) == 20
    assert found.client_names == ("north", "south")
    assert "not read as rows: 3" in found.doubts[0]
    assert "'Total'" in found.doubts[0]


def test_a_word_that_other_rows_have_is_no_total(tmp_path: Path) -> None:
    rows = "".join(f"{'total' if n % 2 else 'partial'},{n}\n" for n in range(20))
    found = table(tmp_path, f"knee,age\n{rows}", label="knee")
    assert len(found.rows) == 20
    assert found.doubts == ()


@pytest.mark.parametrize("name", ["patients.txt", "patients.data"])
def test_other_suffixes_of_text_are_read(tmp_path: Path, name: str) -> None:
    assert table(tmp_path, "age\tbmi\n1\t2\n3\t4\n", name).features == ("age", "bmi")


@given(st.lists(st.lists(st.text(max_size=5), max_size=5), min_size=1, max_size=12))
def test_any_records_have_a_header_or_none(records: list[list[str]]) -> None:
    found = find_header([(line, cells) for line, cells in enumerate(records, 1)])
    assert found is None or 1 <= found.line <= len(records)


def test_excluded_columns_are_left_out_with_the_reason(tmp_path: Path) -> None:
    rows = "".join(f"{n},{'T' * (n % 2)}{n},{n % 3}\n" for n in range(120))
    text = f"age,ticket,class\n{rows}"
    found = table(tmp_path, text, exclude=["class"])
    assert found.features == ("age",)
    assert found.read_from.left_out["class"] == "in data.exclude"
    assert "partly numbers" in found.read_from.left_out["ticket"]
    assert table(tmp_path, text, exclude=["ticket"], categories="error").features == ("age", "class")


def test_rows_without_a_site_are_left_out_when_gaps_are_filled(tmp_path: Path) -> None:
    rows = "".join(f"{n},{n / 3:.2f},{'' if n == 4 else 'ab'[n % 2]}\n" for n in range(20))
    found = table(tmp_path, f"age,bmi,port\n{rows}", client="port")
    assert found.ids.tolist() == [n for n in range(20) if n != 4]
    assert found.read_from.dropped == 1
    with pytest.raises(DataError, match="missing value"):
        table(tmp_path, f"age,bmi,port\n{rows}", client="port", missing="error")


def test_digits_with_leading_zeros_are_codes(tmp_path: Path) -> None:
    rows = "".join(f"{n},{n * 997 % 10_000:05},{n % 3:03}\n" for n in range(120))
    found = table(tmp_path, f"age,zip,ward\n{rows}")
    assert found.features == ("age", "ward=000", "ward=001", "ward=002")
    assert "identity" in found.read_from.left_out["zip"]
    assert table(tmp_path, f"age,zip,ward\n{rows}", categories="error").features == ("age", "zip", "ward")


def test_codes_are_the_same_words_in_new_rows(tmp_path: Path) -> None:
    rows = "".join(f"{n},{n % 3:03}\n" for n in range(60))
    layout = Layout.of(("age", "ward=000", "ward=001", "ward=002"), {"ward": ("000", "001", "002")}, {}, {})
    (tmp_path / "new.csv").write_text(f"age,ward\n{rows}")
    np.testing.assert_array_equal(load(path=tmp_path / "new.csv", layout=layout).rows[1], [1, 0, 1, 0])


def test_missing_cells_are_counted_in_the_file_and_not_by_word(tmp_path: Path) -> None:
    rows = "".join(f"{n},{'' if n % 10 == 0 else 'abc'[n % 3]},{'ab'[n % 2]}\n" for n in range(60))
    (tmp_path / "table.csv").write_text(f"age,grade,site\n{rows}")
    own = own_data(tmp_path / "table.csv", method="fed-pca")
    text = next(fact.text for fact in own.facts if fact.name == "Missing values filled in")
    assert text.startswith("6 by the median of all clients: grade 6")


def test_a_unit_of_few_rows_does_not_leave_its_site(tmp_path: Path) -> None:
    (tmp_path / "few.csv").write_text(column_of(["4 Smith", "5 Smith", "", "", ""]))
    (tmp_path / "many.csv").write_text(column_of([f"{n} kg" for n in range(9)]))
    (tmp_path / "plain.csv").write_text(column_of([f"{n / 2} kg" for n in range(4)]))
    few, many, plain = (
        SiteFile(path=str(tmp_path / f"{name}.csv"), categories="one-hot")
        for name in ("few", "many", "plain")
    )
    assert "Smith" not in str(few.survey())
    assert laid_out(many, [many.survey(), plain.survey()]).units == {"x": "kg"}
    assert "too few rows" in laid_out(few, [few.survey()]).left_out["x"]
    layout = laid_out(many, [many.survey(), few.survey()])
    with pytest.raises(DataError, match="has the unit 'Smith', but the unit 'kg'"):
        load(path=few.path, layout=layout, missing="median")


def test_few_values_that_repeat_are_words_even_if_most_are_digits(tmp_path: Path) -> None:
    rows = "".join(f"{n},{'rotary' if n % 10 == 0 else (4, 6, 8)[n % 3]}\n" for n in range(60))
    found = table(tmp_path, f"power,cylinders\n{rows}")
    assert found.features[1:] == ("cylinders=4", "cylinders=6", "cylinders=8", "cylinders=rotary")
    assert "'cylinders': numbers and words" in found.doubts[0]


def test_months_are_dates_and_no_pairs(tmp_path: Path) -> None:
    rows = "".join(f"{n},{n % 12 + 1}/{86 + n // 12},{n + 90}/{n % 12 + 60}\n" for n in range(60))
    found = table(tmp_path, f"value,month,pressure\n{rows}")
    assert "dates" in found.read_from.left_out["month"]
    assert found.features == ("value", "pressure (first)", "pressure (second)")


def test_a_first_column_without_name_and_values_is_no_index(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="column 1 has no name"):
        table(tmp_path, ",a,b\n,1,2\n,3,4\n", categories="error", missing="error")


def test_blank_rows_in_the_middle_keep_their_numbers(tmp_path: Path) -> None:
    found = table(tmp_path, "age,bmi\n1,2\n,\n3,5\n0,0\n,\n", missing="drop")
    assert found.ids.tolist() == [0, 2, 3]
    with pytest.raises(DataError, match="missing values"):
        table(tmp_path, "age,bmi\n1,2\n,\n3,5\n0,0\n", missing="error")


def test_a_spectrum_has_numbers_as_names(tmp_path: Path) -> None:
    rows = "".join(f"s{n},{n / 3:.2f},{n / 7:.2f},{n % 5}\n" for n in range(20))
    assert table(tmp_path, f"sample,400,410.5,421\n{rows}").features == ("400", "410.5", "421")


def test_an_excluded_column_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    rows = "".join(f"{n},{n % 7},{'ab'[n % 2]}\n" for n in range(20))
    (tmp_path / "sites").mkdir()
    for name in ("table.csv", "sites/a.csv", "sites/b.csv"):
        (tmp_path / name).write_text(f"age,ticket,site\n{rows}")
    for data in (tmp_path / "table.csv", tmp_path / "sites"):
        with pytest.raises(
            DataError, match=r"no column 'tikcet', which data\.exclude names .did you mean ticket"
        ):
            own_data(data, method="fed-pca", overrides={"data.exclude": ["tikcet"]})
        own_data(data, method="fed-pca", overrides={"data.exclude": ["ticket"]})


def test_new_rows_that_can_be_read_in_two_ways_are_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    alike = Alike("the run", ("x",), True, Layout(("x",), units={"x": ""}), filled=True)
    (tmp_path / "new.csv").write_text("x;other\n1,234;0\n5,678;1\n")
    rows = load_alike(tmp_path / "new.csv", alike, id_column=None, missing="median")[0].rows
    assert rows.ravel().tolist() == [1.234, 5.678]
    assert "Commas are read as decimal marks" in caplog.text
    parquet.write_table(pa.table({"x": ["1,234", "5,678"]}), tmp_path / "new.parquet")
    with pytest.raises(DataError, match="thousands separator"):
        list(blocks_alike(tmp_path / "new.parquet", alike, id_column=None, missing="median"))
