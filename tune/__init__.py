"""Sweeps: many runs of one scenario with different settings, with Ray Tune."""
