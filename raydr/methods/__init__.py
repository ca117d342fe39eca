"""Federated methods: a folder, or a file, for each family, and the table of all of them."""

from raydr.methods.method import METHODS, Method, MethodSettings, method
from raydr.methods.outcome import Outcome, Pooled

__all__ = ["METHODS", "Method", "MethodSettings", "Outcome", "Pooled", "method"]
