"""Command line, Python API, estimators and terminal output."""
