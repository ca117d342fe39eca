"""Statistics of the pooled rows from clients' sums: moments, scaling, principal axes."""
