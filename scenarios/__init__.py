"""Typed scenarios: read, planned, run and used afterwards, a room for each, and the runner above them."""
