"""The report of a run folder: a page, a picture, and tables of several runs, from the folder's files alone."""

from __future__ import annotations

from raydr.report.comparison import Comparison, ComparisonRow, compare, write_comparison
from raydr.report.page import write_report
from raydr.report.picture import write_picture
from raydr.report.runfolder import RunFolder, read_run

__all__ = [
    "Comparison",
    "ComparisonRow",
    "RunFolder",
    "compare",
    "read_run",
    "write_comparison",
    "write_picture",
    "write_report",
]
