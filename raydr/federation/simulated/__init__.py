"""Simulated reality: what goes wrong on purpose, and who lies."""
