"""Distances between rows, Euclidean and hyperbolic, and algorithms that several methods share."""
