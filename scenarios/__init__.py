"""Typed scenarios and their runner."""
