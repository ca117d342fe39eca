"""Simulated reality: what goes wrong on purpose, and who lies."""

from raydr.federation.simulated.lying import ADVERSARIES, Adversary, Liars, adversary, attackers

__all__ = ["ADVERSARIES", "Adversary", "Liars", "adversary", "attackers"]
