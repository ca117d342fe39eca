"""Measurements that the documentation quotes, each a module to run."""
