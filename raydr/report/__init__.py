"""Reports from a folder's files alone: of a run a page and a picture, of several runs tables, of a sweep a page."""

from __future__ import annotations

from raydr.report.comparison import Comparison, ComparisonRow, compare, write_comparison
from raydr.report.page import write_report
from raydr.report.papers import PaperTable, read_paper_table, write_paper_report
from raydr.report.picture import write_picture
from raydr.report.released import write_released
from raydr.report.sweep import write_sweep_report

__all__ = [
    "Comparison",
    "ComparisonRow",
    "PaperTable",
    "compare",
    "read_paper_table",
    "write_comparison",
    "write_paper_report",
    "write_picture",
    "write_released",
    "write_report",
    "write_sweep_report",
]
