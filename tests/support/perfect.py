"""Metrics by what a perfect map has of them."""

ONE_WHEN_PERFECT = (
    "npa_1",
    "npa_10",
    "npa_50",
    "trustworthiness",
    "continuity",
    "steadiness",
    "cohesiveness",
    "f_score",
)
