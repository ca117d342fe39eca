"""Distances between rows, Euclidean and hyperbolic, and what several methods do with them."""
