"""Cost of OmniFC, computed from its construction. It is not measured, because nothing here runs it.

    python -m benchmarks.omnifc [--rows 1797 10000 40000] [--features 64 784 784] [--clients 10] [--colluding
    1]
                                [--json FILE]

OmniFC (Yan, Liu & Zhang 2025, arXiv 2505.13071) computes the distances between all rows of all clients, exact
up to rounding to a finite field, by Lagrange coded computing (Yu et al., AISTATS 2019). Each row of d
features is cut into l segments. With t random segments added, they are values of a polynomial of degree l + t
- 1. Every client receives one of its values at other points, d / l numbers of the field for each row. Squared
lengths of differences have degree 2 in these. Every client computes them for all pairs of rows and sends them
to the server. Any 2 (l + t - 1) + 1 of them give the distances by interpolation, summed over the l segments.
Any t clients together learn nothing about a row.

The map is then that of the pooled rows, by construction. And the server has every distance, which gives every
row's place up to one common rotation, for the attack ``distribution-alignment``.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, dataclass
from pathlib import Path

ELEMENT = 8
"""Bytes of a 61-bit field number, whose products fit into 128 bits."""
LANDMARKS = 500
"""Maximum landmarks of Fed-tSNE by default. Distances to them are posted in numbers of the same length as here."""


@dataclass(frozen=True)
class Cost:
    """Cost of a run of OmniFC.

    Attributes
    ----------
    segments : int
        l, the maximum for the number of clients.
    replies : int
        2 (l + t - 1) + 1, the replies that are needed for a distance.
    shared, uploaded : float
        Bytes that all clients send to each other, and that one client sends to the server.
    multiplications : float
        Field multiplications of each client, for the distances of coded rows.
    decoding : float
        Field multiplications of the server.
    """

    segments: int
    replies: int
    shared: float
    uploaded: float
    multiplications: float
    decoding: float


def cost(rows: int, features: int, clients: int, colluding: int = 1) -> Cost:
    """Return the cost for this many rows in total. ``colluding`` is t.

    Raises
    ------
    ValueError
        If there are too few clients. At least 2 t + 1 are needed.

    Examples
    --------
    >>> found = cost(1797, 64, 10)
    >>> found.segments, found.replies, round(found.uploaded / 1e6, 1)
    (4, 9, 12.9)
    """
    segments = (clients + 1) // 2 - colluding
    if segments < 1:
        raise ValueError(
            f"{clients} clients cannot tolerate {colluding} colluding ones: use at least {2 * colluding + 1}"
        )
    replies = 2 * (segments + colluding - 1) + 1
    pairs, width = rows * (rows - 1) / 2, -(-features // segments)
    return Cost(
        segments,
        replies,
        float(rows * width * (clients - 1) * ELEMENT),
        pairs * ELEMENT,
        pairs * width,
        pairs * segments * replies,
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, nargs="+", default=[1797, 10_000, 40_000])
    parser.add_argument("--features", type=int, nargs="+", default=[64, 784, 784])
    parser.add_argument("--clients", type=int, default=10)
    parser.add_argument("--colluding", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="same as without, because these are formulas")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    given = parser.parse_args()
    figures: dict[str, float] = {}
    print(
        "| rows, features | between clients | to the server, from each client | products of each client"
        " | of the server | Fed-tSNE, 500 landmarks at most: to the server, all together |"
    )
    print("| --- | --- | --- | --- | --- | --- |")
    for rows, features in zip(given.rows, given.features, strict=True):
        found = cost(rows, features, given.clients, given.colluding)
        figures |= {f"{rows}x{features}.{name}": float(value) for name, value in asdict(found).items()}
        posted = figures[f"{rows}x{features}.fed-tsne"] = float(rows * min(LANDMARKS, features + 1) * ELEMENT)
        cells = (
            f"{rows:,}, {features}",
            f"{found.shared / 1e6:,.0f} MB",
            f"{found.uploaded / 1e6:,.0f} MB",
            f"{found.multiplications:.1e}",
            f"{found.decoding:.1e}",
            f"{posted / 1e6:,.0f} MB",
        )
        print(f"| {' | '.join(cells)} |")
    if given.json is not None:
        given.json.write_text(json.dumps({"figures": figures, "ratios": {}}, indent=2) + "\n")


if __name__ == "__main__":
    main()
