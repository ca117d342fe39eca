"""Privacy mechanisms, secrets, secure aggregation, accounting, and the ledger of messages."""

from raydr.privacy.mechanism import MECHANISMS, Coverage, Mechanism, Quantity, mechanism

__all__ = ["MECHANISMS", "Coverage", "Mechanism", "Quantity", "mechanism"]
