"""Federated neighbour embedding (P2): an encoder, its contrastive loss, and surrogates for clients out of sight.

The modules that compute import torch, so they are imported where work is done, never for reading settings.
"""
