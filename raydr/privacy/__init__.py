"""Ledger and noise."""
