"""A map under record-level differential privacy: clients release noisy sums, and keep positions."""

from raydr.methods.private_map import server as server
