"""Simulated faults and lying clients."""

from raydr.federation.simulated.lying import ADVERSARIES, Adversary, Liars, adversary, attackers

__all__ = ["ADVERSARIES", "Adversary", "Liars", "adversary", "attackers"]
