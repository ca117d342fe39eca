"""The columns of a table: their names, kinds, words and numbers in writing, and the codebook that corrects them."""
