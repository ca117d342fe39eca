"""Estimates before a run: memory, time, messages, privacy."""
