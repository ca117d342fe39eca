"""What protects messages, and the ledger of all of them."""

from raydr.privacy.mechanism import MECHANISMS, Coverage, Mechanism, Quantity, mechanism

__all__ = ["MECHANISMS", "Coverage", "Mechanism", "Quantity", "mechanism"]
