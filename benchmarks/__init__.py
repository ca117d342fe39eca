"""Benchmarks that the documentation quotes. Each is a module to run."""
