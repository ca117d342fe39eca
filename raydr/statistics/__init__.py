"""What clients' sums tell of the pooled rows: moments, scaling, principal axes."""
