"""Federated methods, one folder or file per family, and their registry."""

from raydr.methods.method import METHODS, Method, MethodSettings, method
from raydr.methods.outcome import Outcome, Pooled

__all__ = ["METHODS", "Method", "MethodSettings", "Outcome", "Pooled", "method"]
