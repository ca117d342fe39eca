"""Sweeps: many runs of one scenario with other settings, by Ray Tune."""
