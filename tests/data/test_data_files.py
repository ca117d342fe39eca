"""User files: what is read, and errors with column, line and remedy."""

from __future__ import annotations

import csv
import gzip
import io
import struct
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.parquet as parquet
import pytest

from raydr.array_files import ArrayArchive, write_array_archive
from raydr.data import load
from raydr.data.files import dialect, text_tables
from raydr.data.files.dialect import Dialect
from raydr.errors import DataError

WriteText = Callable[[str], Path]


@pytest.fixture
def write(tmp_path: Path) -> WriteText:
    def _write(text: str, name: str = "patients.csv") -> Path:
        path = tmp_path / name
        path.write_bytes(text.encode())
        return path

    return _write


def refusal(**arguments: Any) -> str:
    """Return the one paragraph of the error."""
    with pytest.raises(DataError) as caught:
        load(**arguments)
    message = str(caught.value)
    assert "\n" not in message
    assert caught.value.exit_code == 2
    return message


PATIENTS = "age,bmi,site,sick,key\n61,22.5,north,1,p7\n35,31.0,south,0,p9\n50,27.25,north,0,p8\n"


class TestReading:
    def test_csv_columns_take_their_parts(self, write: WriteText) -> None:
        table = load(path=write(PATIENTS), label="sick", client="site", id_column="key")
        assert table.name == "patients.csv"
        assert table.features == ("age", "bmi")
        np.testing.assert_array_equal(table.rows, [[61, 22.5], [35, 31], [50, 27.25]])
        assert table.rows.dtype == np.float64
        assert table.rows.flags.c_contiguous
        assert table.ids.tolist() == ["p7", "p9", "p8"]
        assert table.labels is not None
        assert table.labels.tolist() == [1, 0, 0]
        assert table.label_names == ("0", "1")
        assert table.client_keys is not None
        assert table.client_keys.tolist() == [0, 1, 0]
        assert table.client_names == ("north", "south")

    def test_listed_features_keep_their_order(self, write: WriteText) -> None:
        table = load(path=write(PATIENTS), features=["bmi", "age"])
        assert table.features == ("bmi", "age")
        np.testing.assert_array_equal(table.rows[0], [22.5, 61])
        assert table.ids.tolist() == [0, 1, 2]
        assert table.labels is None

    @pytest.mark.parametrize("separator", [";", "\t", ","])
    def test_separator_is_seen_in_the_header(self, write: WriteText, separator: str) -> None:
        table = load(path=write("a,b\n1,2\n3,4\n".replace(",", separator)))
        np.testing.assert_array_equal(table.rows, [[1, 2], [3, 4]])

    def test_byte_order_mark_and_blanks_are_not_part_of_names(self, write: WriteText) -> None:
        assert load(path=write("\ufeffa, b\n1, 2\n3, 4\n")).features == ("a", "b")

    def test_header_of_counted_columns_is_a_header(self, write: WriteText) -> None:
        assert load(path=write("0,1\n5,6\n7,8\n")).features == ("0", "1")

    def test_booleans_count_as_zero_and_one(self, write: WriteText) -> None:
        table = load(path=write("a,smoker\n1,true\n2,false\n"))
        np.testing.assert_array_equal(table.rows[:, 1], [1, 0])

    def test_a_column_may_be_label_and_client_at_once(self, write: WriteText) -> None:
        table = load(path=write(PATIENTS), label="site", client="site", features=["age"])
        assert table.label_names == table.client_names == ("north", "south")

    def test_whole_float_labels_are_integers_in_numeric_order(self, write: WriteText) -> None:
        table = load(path=write("a,grade\n1,10.0\n2,9.0\n3,2.5\n"), label="grade")
        assert table.label_names == ("2.5", "9", "10")

    def test_text_labels_are_stripped(self, write: WriteText) -> None:
        table = load(path=write("a,kind\n1, x\n2,x \n3,y\n"), label="kind")
        assert table.label_names == ("x", "y")

    def test_na_is_text_among_text_and_missing_among_numbers(self, write: WriteText) -> None:
        path = write("a,land,grade\n1,NA,1\n2,ZA,NA\n3,NA,2\n")
        assert load(path=path, label="land", features=["a"]).label_names == ("NA", "ZA")
        assert "'grade' on line 3" in refusal(path=path, label="grade", features=["a"])

    def test_relative_and_home_paths(self, write: WriteText, monkeypatch: pytest.MonkeyPatch) -> None:
        folder = write(PATIENTS).parent
        monkeypatch.chdir(folder)
        monkeypatch.setenv("HOME", str(folder))
        here = load(path="patients.csv", features=["age"])
        np.testing.assert_array_equal(load(path="~/patients.csv", features=["age"]).rows, here.rows)

    @pytest.mark.parametrize(
        ("kind", "expected"),
        [
            ("uint8", np.float32),
            ("int16", np.float32),
            ("bool", np.float32),
            ("float16", np.float32),
            ("float32", np.float32),
            ("int32", np.float64),
            ("int64", np.float64),
            ("float64", np.float64),
        ],
    )
    def test_float32_exactly_where_it_holds_the_source(
        self, tmp_path: Path, kind: str, expected: type
    ) -> None:
        values = np.array([[1, 0], [0, 1], [1, 1]]).astype(kind)
        np.save(tmp_path / "x.npy", values)
        np.savez(tmp_path / "x.npz", X=values)
        parquet.write_table(pa.table({"a": values[:, 0], "b": values[:, 1]}), tmp_path / "x.parquet")
        for name in ("x.npy", "x.npz", "x.parquet"):
            rows = load(path=tmp_path / name).rows
            assert rows.dtype == expected, name
            np.testing.assert_array_equal(rows, values.astype(float))

    def test_parquet_categories_dates_nulls_and_pandas_index(self, tmp_path: Path) -> None:
        table = pa.table(
            {
                "dose": pa.array([1, None, 3], pa.int8()),
                "cost": pa.array([1, 2, 3]).cast(pa.decimal128(21, 2)),
                "site": pa.array(["n", "s", "n"]).dictionary_encode(),
                "day": pa.array([0, 1, 0], pa.date32()),
                "visit": pa.array([5, 6, 7]),
            }
        ).replace_schema_metadata({"pandas": '{"index_columns": ["visit"], "columns": []}'})
        parquet.write_table(table, tmp_path / "x.parquet")
        read = load(
            path=tmp_path / "x.parquet", client="site", label="day", id_column="visit", missing="drop"
        )
        assert read.features == ("dose", "cost")
        assert read.ids.tolist() == [5, 7]
        assert read.client_names == ("n", "s")
        assert read.label_names == ("1970-01-01", "1970-01-02")
        unnamed = load(path=tmp_path / "x.parquet", client="site", label="day", missing="drop")
        assert "visit" not in unnamed.features

    def test_quoted_line_breaks_are_read_right_in_files_of_many_blocks(self, write: WriteText) -> None:
        rows = 30_000
        path = write("a,note\n" + "".join(f'{row},"{"long " * 9}\n{row % 2}"\n' for row in range(rows)))
        table = load(path=path, label="note")
        np.testing.assert_array_equal(table.rows[:, 0], np.arange(rows))
        np.testing.assert_array_equal(table.labels, np.arange(rows) % 2)


class TestColumnsThatHoldMoreLater:
    """The type of a column is known only at its end; the result equals Arrow's for the whole file."""

    LATER: ClassVar = {
        "whole": [1, 2],
        "whole, then fractions": [1, 0.5],
        "empty, then whole": ["", 7],
        "empty, then fractions": ["", "2.5e3"],
        "empty, then text": ["", "north"],
        "whole, then text": [1, "south"],
        "whole, then a missing number": [1, "NA"],
        "fractions, then text": [0.5, "x"],
        "a date, then text": ["2020-01-01", "soon"],
        "one or none, then truth": [1, "true"],
        "past 2**53": [1, 2**62 + 1],
        "past every whole number": [1, 2**70],
        "empty": ["", ""],
    }

    @pytest.mark.parametrize("which", [[name] for name in LATER] + [list(LATER)], ids=", and ".join)
    def test_late_values_give_the_same_types_as_one_read(
        self, which: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        rows = 400
        columns = [
            [self.LATER[name][row >= 300 + at] for row in range(rows)] for at, name in enumerate(which)
        ]
        path = tmp_path / "later.csv"
        with path.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["row", *which])
            writer.writerows(zip(range(rows), *columns, strict=True))
        monkeypatch.setattr(text_tables, "_LEAST_BLOCK", 500)
        monkeypatch.setattr(text_tables, "_OF_A_COLUMN", 100)
        found = text_tables.read_text_table(path, Dialect())
        assert found.equals(arrow_csv.read_csv(path))


class TestFeatureFaults:
    def test_text_names_column_cell_line_and_remedies(self, write: WriteText) -> None:
        message = refusal(path=write(PATIENTS))
        for part in (
            "'site'",
            "'north'",
            "line 2",
            "data.exclude",
            "data.label",
            "clients.partition.column",
            "'age', 'bmi'",
        ):
            assert part in message
        assert "'key'" in message

    def test_one_bad_cell_in_a_numeric_column_is_the_one_named(self, write: WriteText) -> None:
        message = refusal(path=write("a,b\n1,2\n,n/a\n3,unknown\n4,5\n"))
        assert "'unknown' on line 4" in message

    def test_lines_are_counted_through_blank_lines_and_quoted_breaks(self, write: WriteText) -> None:
        message = refusal(path=write('a,note\n1,"two\nlines"\n\n3,x\nbad,y\n'), label="note")
        assert "'bad' on line 6" in message

    def test_numbers_stored_as_text(self, tmp_path: Path) -> None:
        parquet.write_table(pa.table({"a": [1, 2], "b": ["3.5", "4"]}), tmp_path / "x.parquet")
        assert "'3.5' on row 0" in refusal(path=tmp_path / "x.parquet")
        np.savez(tmp_path / "x.npz", X=np.array([["1", "2"], ["3", "x"]]))
        assert "'1' in feature 'x0'" in refusal(path=tmp_path / "x.npz")

    @pytest.mark.parametrize("cells", [["2020-01-01", "2020-01-02"], ["12:00:00", "12:00:01"]])
    def test_dates_and_times_are_not_numbers(self, write: WriteText, cells: list[str]) -> None:
        message = refusal(path=write(f"a,when\n1,{cells[0]}\n2,{cells[1]}\n"))
        assert "'when'" in message
        assert cells[0] in message

    def test_nested_and_complex_values_are_refused(self, tmp_path: Path) -> None:
        parquet.write_table(pa.table({"a": [1, 2], "b": [[1], [2, 3]]}), tmp_path / "x.parquet")
        assert "'b'" in refusal(path=tmp_path / "x.parquet")
        np.save(tmp_path / "x.npy", np.eye(2) * 1j)
        assert "complex" in refusal(path=tmp_path / "x.npy")

    @pytest.mark.parametrize("suffix", ["csv", "npz"])
    def test_missing_values_are_counted_located_and_refused(self, tmp_path: Path, suffix: str) -> None:
        if suffix == "csv":
            (tmp_path / "x.csv").write_text("a,b,c\n1,2,3\n4,,NaN\n7,8,n/a\n")
        else:
            matrix = np.array([[1, 2, 3], [4, np.nan, np.nan], [7, 8, np.nan]])
            np.savez(tmp_path / "x.npz", X=matrix, feature_names=np.array(["a", "b", "c"]))
        message = refusal(path=tmp_path / f"x.{suffix}")
        for part in (
            "3 missing values",
            "'b', 'c'",
            "in 2 of 3 rows",
            "first is in 'b'",
            "data.missing: drop",
        ):
            assert part in message
        assert ("line 3" if suffix == "csv" else "row 1") in message

    def test_dropped_rows_leave_the_others_their_ids(self, write: WriteText) -> None:
        table = load(path=write("a,b\n1,2\n,3\n4,5\n6,\n7,8\n"), missing="drop")
        assert table.ids.tolist() == [0, 2, 4]
        np.testing.assert_array_equal(table.rows, [[1, 2], [4, 5], [7, 8]])

    @pytest.mark.parametrize("part", ["label", "client", "id_column"])
    def test_an_empty_key_cell_is_a_missing_value(self, write: WriteText, part: str) -> None:
        path = write("a,key\n1,x\n2,\n3,z\n")
        message = refusal(path=path, **{part: "key"})
        assert "1 missing value in the column 'key'" in message
        assert "line 3" in message
        options: dict[str, Any] = {part: "key"}
        kept = load(path=path, missing="drop", **options)
        np.testing.assert_array_equal(kept.rows, [[1], [3]])

    def test_class_of_only_dropped_rows_is_allowed(self, write: WriteText) -> None:
        table = load(path=write("a,kind\n1,x\n,y\n3,x\n"), label="kind", missing="drop")
        assert table.labels is not None
        assert set(table.labels.tolist()) == {0}

    def test_unused_columns_may_have_gaps(self, write: WriteText) -> None:
        assert load(path=write("a,b\n1,\n2,3\n"), features=["a"]).rows.shape == (2, 1)

    @pytest.mark.parametrize("cell", ["inf", "-inf", "1e999"])
    def test_infinite_values_are_refused(self, write: WriteText, cell: str) -> None:
        message = refusal(path=write(f"a,b\n1,2\n3,{cell}\n"))
        assert "infinite" in message
        assert "'b' on line 3" in message

    def test_equal_rows_are_refused_and_constant_columns_kept(self, write: WriteText) -> None:
        assert "equal in every feature" in refusal(path=write("a,b\n1,2\n1,2\n"))
        table = load(path=write("a,b\n1,2\n1,3\n"))
        assert table.features == ("a", "b")
        assert table.constant_features == ("a",)


class TestColumnFaults:
    @pytest.mark.parametrize("part", ["label", "client", "id_column"])
    def test_absent_column_names_the_nearest_and_all(self, write: WriteText, part: str) -> None:
        message = refusal(path=write(PATIENTS), **{part: "Site "})
        assert "(did you mean site?)" in message
        assert "'age', 'bmi', 'site', 'sick', 'key'" in message
        assert {"client": "clients.partition.column", "id_column": "data.id"}.get(
            part, "data.label"
        ) in message

    def test_absent_feature(self, write: WriteText) -> None:
        assert "(did you mean bmi?)" in refusal(path=write(PATIENTS), features=["age", "bmii"])

    def test_absent_array(self, tmp_path: Path) -> None:
        np.savez(tmp_path / "x.npz", X=np.eye(3), ward=np.arange(3), edges=np.zeros((2, 2)))
        message = refusal(path=tmp_path / "x.npz", client="wards")
        assert "(did you mean ward?)" in message
        assert "edges" not in message
        assert "shape (2, 2)" in refusal(path=tmp_path / "x.npz", label="edges")

    def test_repeated_columns_and_listings(self, write: WriteText) -> None:
        assert "'age'" in refusal(path=write(PATIENTS), features=["age", "age"])
        assert "both data.label" in refusal(path=write(PATIENTS), features=["age", "sick"], label="sick")
        assert "no feature column" in refusal(path=write("a\nx\ny\n"), label="a")
        assert "no feature column" in refusal(path=write(PATIENTS), features=[])

    def test_unnamed_column_is_not_a_feature(self, write: WriteText) -> None:
        path = write(",a\n1,5\n1,6\n")
        assert "column 1 has no name" in refusal(path=path)
        assert load(path=path, features=["a"]).features == ("a",)

    @pytest.mark.parametrize("kind", ["text", "number"])
    def test_duplicate_ids_name_the_first_and_its_lines(self, write: WriteText, kind: str) -> None:
        ids = ["p1", "p2", "p3", "p2", "p1"] if kind == "text" else ["1", "2", "3", "2", "1"]
        path = write("a,key\n" + "".join(f"{row},{key}\n" for row, key in enumerate(ids)))
        message = refusal(path=path, id_column="key")
        assert f"'{ids[1]}'" in message
        assert "line 3 and again on line 5" in message

    def test_wide_npy_is_read_in_time_linear_in_columns(self, tmp_path: Path) -> None:
        """A search through all names for each name takes 20 s of processor time for these columns."""
        np.save(tmp_path / "wide.npy", np.eye(2, 50_000))
        started = time.process_time()
        table = load(path=tmp_path / "wide.npy")
        assert table.rows.shape == (2, 50_000)
        assert time.process_time() - started < 5.0

    def test_npy_has_no_keys(self, tmp_path: Path) -> None:
        np.save(tmp_path / "x.npy", np.eye(3))
        assert ".npz" in refusal(path=tmp_path / "x.npy", label="y")


class TestFileFaults:
    @pytest.mark.parametrize(
        ("name", "content", "sentence"),
        [
            ("x.csv", b"", "empty"),
            ("x.csv", b"\n\n", "empty"),
            ("x.csv", b"a,b\n", "0 usable rows"),
            ("x.csv", b"a,b\n1,2\n", "1 usable row"),
            ("x.csv", b"a,b\n1,2\n3\n4,5\n", "line 3 has 1 cells but the header has 2"),
            ("x.csv", b"1.5,2\n3,4\n", "no header"),
            ("x.csv", b"a,b\n1,\x81\n2,3\n", "UTF-8"),
            ("x.csv", b"a,gr\xf6\x00e\n1,2\n", "UTF-8"),
            ("x.parquet", b"not parquet at all", "Parquet"),
            ("x.npy", b"not numpy at all", "x.npy"),
            ("x.npz", b"not numpy at all", "x.npz"),
            ("x.npz", b"PK\x03\x04 damaged", "x.npz"),
            ("x.xlsx", b"anything", ".csv, .parquet, .npy, .npz"),
        ],
    )
    def test_files_without_a_table_are_refused(
        self, tmp_path: Path, name: str, content: bytes, sentence: str
    ) -> None:
        (tmp_path / name).write_bytes(content)
        assert sentence in refusal(path=tmp_path / name)

    def test_latin_1_cells(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        path = tmp_path / "x.csv"
        path.write_bytes("a,town\n1,Köln\n2,Bonn\n".encode("latin-1"))
        assert load(path=path, label="town").label_names == ("Bonn", "Köln")
        assert "x.csv is not UTF-8 text. It is read as cp1252" in caplog.text

    def test_absent_file_names_its_nearest_neighbour(self, write: WriteText) -> None:
        path = write(PATIENTS)
        assert "(did you mean patients.csv?)" in refusal(path=path.with_name("patient.csv"))
        assert "cannot be opened" in refusal(path=path.parent / "no" / "such.csv")

    def test_folder(self, tmp_path: Path) -> None:
        assert "is a folder" in refusal(path=tmp_path)

    def test_unreadable_file(self, write: WriteText, monkeypatch: pytest.MonkeyPatch) -> None:
        def denied(*_: object, **__: object) -> None:
            raise PermissionError(13, "Permission denied")

        path = write(PATIENTS)
        monkeypatch.setattr(Path, "open", denied)
        assert "Permission denied" in refusal(path=path)

    def test_pickled_objects_are_never_opened(self, tmp_path: Path) -> None:
        np.savez(tmp_path / "x.npz", X=np.array([[1, None]], dtype=object))
        assert "pickled" in refusal(path=tmp_path / "x.npz")

    def test_npz_without_features_and_images(self, tmp_path: Path) -> None:
        np.savez(tmp_path / "x.npz", x=np.eye(3))
        assert "no array X for the features (did you mean x?)" in refusal(path=tmp_path / "x.npz")
        np.savez(tmp_path / "x.npz", X=np.zeros((5, 8, 8)))
        assert "reshape(len(X), -1)" in refusal(path=tmp_path / "x.npz")

    def test_swapped_suffixes(self, tmp_path: Path) -> None:
        np.save(tmp_path / "x.npy", np.eye(2))
        (tmp_path / "x.npy").rename(tmp_path / "x.npz")
        assert "is a .npy file" in refusal(path=tmp_path / "x.npz")
        np.savez(tmp_path / "y.npz", X=np.eye(2))
        (tmp_path / "y.npz").rename(tmp_path / "y.npy")
        assert "is a .npz file" in refusal(path=tmp_path / "y.npy")

    def test_exactly_one_of_source_and_path(self, write: WriteText) -> None:
        assert "Give exactly one" in refusal()
        assert "Give exactly one" in refusal(source="iris", path=write(PATIENTS))

    def test_unknown_way_with_missing_values(self, write: WriteText) -> None:
        assert "'error', 'drop', 'mean' or 'median'" in refusal(path=write(PATIENTS), missing="impute")


def npy(descr: str, shape: str, body: bytes) -> bytes:
    """Return a .npy file with this header."""
    header = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + body


BODY = np.arange(200.0).tobytes()
HEADERS: dict[str, tuple[bytes, str]] = {
    "too many rows": (
        npy("'<f8'", "(5000, 4)", BODY),
        "(5000, 4) of float64, which takes 156.2 KiB, but the file",
    ),
    "too few rows": (
        npy("'<f8'", "(10, 4)", BODY),
        "(10, 4) of float64, which takes 320 bytes, but the file holds",
    ),
    "another type": (
        npy("'<c16'", "(50, 4)", BODY),
        "of complex128, which takes 3200 bytes, but the file holds",
    ),
    "more than any memory": (
        npy("'<f8'", "(10000000000, 4)", BODY),
        "which takes 298 GiB, but the file holds 1600",
    ),
    "an overflowing shape": (
        npy("'<f8'", f"({2**62}, {2**62})", BODY),
        "which takes 1.547e+26 TiB, but the file",
    ),
    "a negative shape": (
        npy("'<f8'", "(-50, 4)", BODY),
        "shape (-50, 4) of float64, which is not a valid shape. 1600 bytes",
    ),
    "a negative area": (
        npy("'<f8'", "(-50, -4)", BODY),
        "shape (-50, -4) of float64, which is not a valid shape. 1600",
    ),
    "a truth for a length": (
        npy("'<f8'", "(50, True)", BODY),
        "which takes 400 bytes, but the file holds 1600",
    ),
    "a cut array": (
        npy("'<f8'", "(50, 4)", BODY)[:-100],
        "which takes 1600 bytes, but the file holds 1500 bytes",
    ),
    "a cut header": (npy("'<f8'", "(50, 4)", BODY)[:40], "cannot be read (EOF: reading array header"),
    "no Python": (npy("((((", "(50, 4)", BODY), "cannot be read ("),
    "deep Python": (npy("(" * 3000, "(50, 4)", BODY), "cannot be read ("),
    "a long header": (npy("'" + "<f8" * 9000 + "'", "(50, 4)", BODY), "cannot be read (Header info length"),
    "no type": (npy("'<q9'", "(50, 4)", BODY), "cannot be read (descr is not a valid dtype"),
    "objects": (
        npy("'|O'", "(50, 4)", BODY),
        "shape (50, 4) of object. The array holds pickled Python objects",
    ),
    "an empty array without end": (npy("'<f8'", f"(0, {2**63})", b""), "but it cannot be read ("),
}


class TestArraysOfOthers:
    """Array headers are compared with the file size and the memory before use."""

    @pytest.mark.parametrize("case", HEADERS)
    @pytest.mark.parametrize("ending", [".npy", ".npz"])
    def test_wrong_array_header_is_refused_with_the_file_size(
        self, tmp_path: Path, case: str, ending: str
    ) -> None:
        content, sentence = HEADERS[case]
        path = tmp_path / f"x{ending}"
        path.write_bytes(content)
        if ending == ".npz":
            with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
                file.writestr("X.npy", content)
        message = refusal(path=path)
        assert str(path) in message
        assert ("its header" if ending == ".npy" else "the header of 'X'") in message
        assert sentence in message
        assert "again, or save the array again" in message or "Save plain arrays" in message
        assert len(message) < 1000

    def test_array_larger_than_memory_is_refused_by_its_header(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = tmp_path / "x.npy"
        header = npy("'<f8'", f"({2**35}, 4)", b"")
        with path.open("wb") as file:
            file.write(header)
            file.truncate(len(header) + 2**40)  # a sparse file, which needs no space
        message = refusal(path=path)
        assert "its header gives the shape (34359738368, 4) of float64: 1 TiB of memory is needed" in message
        assert "raydr plan FILE --rows 34359738368" in message

        whole = tmp_path / "y.npz"
        np.savez_compressed(whole, X=np.eye(1000, dtype=np.uint8), y=np.arange(1000))
        monkeypatch.setattr("raydr.memory.available_memory_bytes", lambda: 4_900_000)
        assert "the header of 'X' gives the shape (1000, 1000) of uint8: 4.768 MiB of memory" in refusal(
            path=whole
        )
        monkeypatch.setattr("raydr.memory.available_memory_bytes", lambda: 5_100_000)
        assert load(path=whole).rows.shape == (1000, 1000)

    def test_archive_member_without_an_array_is_named(self, tmp_path: Path) -> None:
        with zipfile.ZipFile(tmp_path / "x.npz", "w") as file:
            file.writestr("X", "a,b\n1,2\n")
        assert "the header of 'X' cannot be read" in refusal(path=tmp_path / "x.npz")

    def test_truncated_archive_is_refused(self, tmp_path: Path) -> None:
        whole = io.BytesIO()
        np.savez_compressed(whole, X=np.random.default_rng(0).normal(size=(50, 4)))
        path = tmp_path / "x.npz"
        for length in range(10, len(whole.getvalue()), 97):
            path.write_bytes(whole.getvalue()[:length])
            assert "cannot be read as a .npz file" in refusal(path=path)

    def test_out_of_memory_is_one_paragraph(self, write: WriteText, monkeypatch: pytest.MonkeyPatch) -> None:
        def full(*_: object, **__: object) -> None:
            raise MemoryError("Unable to allocate 29 TiB")

        monkeypatch.setattr(text_tables, "read_watched", full)
        assert "needs more than the" in refusal(path=write(PATIENTS))


def memory_of(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the number of free bytes of memory."""
    monkeypatch.setattr("raydr.memory.available_memory_bytes", lambda: count)
    monkeypatch.setattr(text_tables, "available_memory_bytes", lambda: count)


class TestFilesThatUnpackToMore:
    """A small file may hold a large table: its size comes from its footer, or is limited to half of memory."""

    def test_text_is_unpacked_up_to_half_of_free_memory(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = tmp_path / "x.csv.gz"
        path.write_bytes(gzip.compress(b"a,b,c,d\n0,0,0,1\n" + b"1,2,3,4\n" * 200_000))
        memory_of(2**22, monkeypatch)
        message = refusal(path=path)
        assert "holds 1.526 MiB unpacked. As a table it takes" in message
        assert "over half of the free memory here" in message
        memory_of(2**28, monkeypatch)
        assert load(path=path).rows.shape == (200_001, 4)

    @pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
    @pytest.mark.parametrize("start", ["", "a,b\n"])
    def test_endless_line_is_refused(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start: str, encoding: str
    ) -> None:
        monkeypatch.setattr(dialect, "LONGEST_LINE", 2**22)
        path = tmp_path / "x.csv.gz"
        path.write_bytes(gzip.compress((start + "1" * 2**23).encode(encoding)))
        message = refusal(path=path)
        assert f"{path} has a line of more than 4 MiB, unpacked" in message
        path.write_bytes(gzip.compress(b"a,b\n" + b"11,22\n" * 2**20))
        assert len(load(path=path, rows=2, missing="drop", features=["a"], for_map=False).rows) == 2

    def test_parquet_footer_larger_than_memory_is_refused(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = tmp_path / "x.parquet"
        values = np.zeros(200_000)
        values[0] = 1
        parquet.write_table(pa.table({"a": values, "b": values}), path, row_group_size=150_000)
        memory_of(3_199_999, monkeypatch)
        message = refusal(path=path)
        assert "gives 200000 rows of 2 columns in 2 row groups, the largest of 150000" in message
        assert "3.052 MiB of memory is needed" in message
        assert "--rows 200000" in message
        memory_of(2**26, monkeypatch)
        assert load(path=path).rows.shape == (200_000, 2)

    def test_dictionary_text_in_parquet_is_not_expanded(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = tmp_path / "x.parquet"
        notes = pa.DictionaryArray.from_arrays(pa.array([0] * 3000, pa.int32()), pa.array(["x" * 10**6]))
        table = pa.table({"a": np.arange(3000.0), "note": notes})
        parquet.write_table(table.replace_schema_metadata(None), path, store_schema=False)
        assert path.stat().st_size < 200_000
        memory_of(2**28, monkeypatch)
        before = pa.default_memory_pool().max_memory()
        assert load(path=path, features=["a"]).rows.shape == (3000, 1)
        assert pa.default_memory_pool().max_memory() - before < 2**28
        message = refusal(path=path, label="note")
        assert (
            "the longest cell of the column 'note' has 1000000 bytes, and each of its 3000 cells" in message
        )

    def test_empty_single_cell_matrix_is_refused(self, tmp_path: Path) -> None:
        pytest.importorskip("anndata")
        import h5py

        path = tmp_path / "x.h5ad"
        with h5py.File(path, "w") as file:
            file.create_dataset("X", (10**7, 10**6), "f8", chunks=(1000, 1000), compression="gzip")
        assert "is larger than the free memory when unpacked: 72.76 TiB of memory is needed" in refusal(
            path=path
        )


def test_written_archive_is_readable_by_numpy(tmp_path: Path) -> None:
    arrays = {"file": np.arange(3.0), "allow_pickle": np.array(["a", "bc"]), "empty": np.empty((0, 2))}
    ours, theirs = tmp_path / "ours.npz", io.BytesIO()
    for is_compressed, save in ((False, np.savez), (True, np.savez_compressed)):
        write_array_archive(ours, arrays, is_compressed=is_compressed)
        with ArrayArchive(ours) as archive:
            assert list(archive) == list(arrays)
            assert all(np.array_equal(archive[name], values) for name, values in arrays.items())
        renamed = {f"a{name}": values for name, values in arrays.items()}
        write_array_archive(ours, renamed, is_compressed=is_compressed)
        theirs.seek(0)
        save(theirs, **renamed)
        assert ours.read_bytes() == theirs.getvalue()[: theirs.tell()]


def test_written_archive_refuses_python_objects() -> None:
    with pytest.raises(ValueError, match="Object arrays cannot be saved"):
        write_array_archive(io.BytesIO(), {"words": np.array([{"a": 1}], dtype=object)})
