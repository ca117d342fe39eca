"""A map under differential privacy for records as a whole: noisy sums leave the clients, and places stay with them."""

from raydr.methods.private_map import server as server
