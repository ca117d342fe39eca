"""Methods over landmarks: Fed-tSNE and Fed-UMAP (P1)."""

from raydr.methods.landmarks import maps as maps
