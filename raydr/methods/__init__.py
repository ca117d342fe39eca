"""Federated methods: a folder, or a file, for each family, and the table of all of them."""

from raydr.methods.method import METHODS, Method, method
from raydr.methods.outcome import Outcome

__all__ = ["METHODS", "Method", "Outcome", "method"]
