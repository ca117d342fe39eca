"""Sweeps over scenarios."""
