"""dSNE: t-SNE of rows that stay at their sites, aligned by public reference rows (Saha et al. 2017)."""

from raydr.methods.dsne import server as server
