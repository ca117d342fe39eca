"""Reports from the files of a folder: pages and pictures of runs, comparisons, sweeps and paper tables."""

from __future__ import annotations

from raydr.report.picture import write_picture
from raydr.report.run.comparison import ComparisonRow, RunComparison, compare, write_comparison
from raydr.report.run.page import write_report
from raydr.report.run.released import write_released
from raydr.report.sweep.page import write_sweep_report
from raydr.report.sweep.papers import write_paper_report

__all__ = [
    "ComparisonRow",
    "RunComparison",
    "compare",
    "write_comparison",
    "write_paper_report",
    "write_picture",
    "write_released",
    "write_report",
    "write_sweep_report",
]
