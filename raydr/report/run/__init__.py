"""The page of a run, of runs next to each other, and of what epsilon covers, with their templates."""
