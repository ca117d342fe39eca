"""Scenario files: models of the sections, rules between them, and reading."""
