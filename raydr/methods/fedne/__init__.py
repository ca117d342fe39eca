"""FedNE and its baselines: one shared encoder, trained where the rows are (P2)."""

from raydr.methods.fedne import fedne as fedne  # isort: split

from raydr.methods.fedne import baselines as baselines
from raydr.methods.fedne import landmark as landmark
