"""Work on complete run folders: audit, report, bounds, new rows, joining sites."""
