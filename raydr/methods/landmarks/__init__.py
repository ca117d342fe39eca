"""Methods over landmarks: Fed-tSNE, Fed-UMAP and Fed-SpeClust (P1)."""

from raydr.methods.landmarks import maps as maps
from raydr.methods.landmarks import spectral as spectral
