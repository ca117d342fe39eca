"""A run over Flower: the server's calls to the sites' nodes, and the sites' answers.

Only the modules :mod:`~raydr.runtimes.flower.grid`, :mod:`~raydr.runtimes.flower.client_app` and
:mod:`~raydr.runtimes.flower.server_app` import Flower. The others turn bytes into bytes, so they work and are tested
without it.
"""
