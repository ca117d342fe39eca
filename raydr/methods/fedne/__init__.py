"""FedNE and what it is compared with: one encoder for everybody, trained where the rows are (P2)."""

from raydr.methods.fedne import server as server  # isort: split

from raydr.methods.fedne import baselines as baselines
from raydr.methods.fedne import landmark as landmark
