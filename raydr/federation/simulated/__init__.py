"""Simulated reality: what goes wrong on purpose, and who lies."""

from raydr.federation.simulated.adversary import ATTACKS, Adversary, Attack, attack, attackers

__all__ = ["ATTACKS", "Adversary", "Attack", "attack", "attackers"]
