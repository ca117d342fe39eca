"""Scenarios: schema, planning, running, and work on finished run folders."""
