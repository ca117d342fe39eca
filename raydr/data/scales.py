"""Scales of words that have an order for everybody, such as none, mild and severe."""

from __future__ import annotations

from collections.abc import Sequence

_LEAST = 3  # words of a column that show a scale
_SCALES = tuple(
    tuple(frozenset(rank.split("/")) for rank in scale.split(" < "))
    for scale in (
        "none/no/absent < very mild/minimal < mild < moderate < severe < very severe/extreme",
        "very low < low < medium/moderate/normal/average/middle < high < very high",
        "very small < small < medium < large < very large",
        "strongly disagree/completely disagree < disagree < somewhat disagree/slightly disagree"
        " < neutral/neither agree nor disagree/undecided < somewhat agree/slightly agree < agree"
        " < strongly agree/completely agree",
        "very dissatisfied < dissatisfied < neutral/neither satisfied nor dissatisfied < satisfied < very satisfied",
        "very unlikely < unlikely < neutral < likely < very likely",
        "never < almost never < rarely/seldom < sometimes/occasionally < often/frequently/usually"
        " < almost always/very often < always",
        "very poor < poor < fair < good < very good < excellent",
        "not at all < a little/a little bit/slightly < somewhat/moderately < quite a bit/very < very much/extremely",
        "very bad < bad < neutral/average < good < very good",
        "beginner < intermediate < advanced < expert",
        "i < ii < iii < iv < v",
        "stage i < stage ii < stage iii < stage iv",
        "first < second < third < fourth < fifth",
    )
)
"""Ranks of each scale, from low to high. Of words that mean the same, separated by /, a column may have one."""


def in_order(words: Sequence[str]) -> tuple[str, ...] | None:
    """Return the words from low to high if they are at least three ranks of one scale, else None.

    >>> in_order(["Mild", "None", "Severe"]), in_order(["blue", "mild", "severe"]), in_order(["no", "none", "mild"])
    (('None', 'Mild', 'Severe'), None, None)
    """
    if len(words) < _LEAST:
        return None
    plain = [" ".join(word.casefold().split()) for word in words]
    for scale in _SCALES:
        ranks = [next((rank for rank, same in enumerate(scale) if word in same), None) for word in plain]
        known = [rank for rank in ranks if rank is not None]
        if len(set(known)) == len(words):
            return tuple(word for _, word in sorted(zip(known, words, strict=True)))
    return None
