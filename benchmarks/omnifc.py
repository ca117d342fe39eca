"""What OmniFC would cost: computed from its construction, not measured, since nothing here runs it.

    python -m benchmarks.omnifc [--rows 1797 10000 40000] [--features 64 784 784] [--clients 10] [--colluding 1]
                                [--json FILE]

OmniFC (Yan, Liu & Zhang 2025, arXiv 2505.13071) brings the distances between all rows of all clients, as they are but
for the rounding to a finite field, by Lagrange coded computing (Yu et al., AISTATS 2019). Each row of d features is cut
into l segments; with t random ones beside them they are values of a polynomial of degree l + t - 1, of whose values at
other points every client gets one, d / l numbers of the field for each row. Squared lengths of differences are of
degree 2 in these: every client computes them for all pairs of rows and tells the server, and any 2 (l + t - 1) + 1 of
them tell it the distances by interpolation, summed over the l segments. Any t clients together learn nothing of a row.

The map is then that of the pooled rows, by construction; and the server has every distance, which is every row's place
up to a turn that all share, for the attack ``distribution-alignment`` to look for.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, dataclass
from pathlib import Path

ELEMENT = 8
"""Bytes of a number of the field, of 61 bits, so that products fit into 128."""
LANDMARKS = 500
"""Of Fed-tSNE by default, at most, to which each row's distances are posted, as long numbers as the field's here."""


@dataclass(frozen=True)
class Cost:
    """What a run of OmniFC takes.

    Attributes
    ----------
    segments : int
        l, as many as the clients allow.
    replies : int
        2 (l + t - 1) + 1, without which there is no distance.
    shared, told : float
        Bytes that all clients send to each other, and that one client tells the server.
    multiplications : float
        In the field, of each client, for the distances of coded rows.
    decoding : float
        In the field, of the server.
    """

    segments: int
    replies: int
    shared: float
    told: float
    multiplications: float
    decoding: float


def cost(rows: int, features: int, clients: int, colluding: int = 1) -> Cost:
    """Of so many rows in all; ``colluding`` is t.

    Raises
    ------
    ValueError
        If there are too few clients: at least 2 t + 1.

    Examples
    --------
    >>> found = cost(1797, 64, 10)
    >>> found.segments, found.replies, round(found.told / 1e6, 1)
    (4, 9, 12.9)
    """
    segments = (clients + 1) // 2 - colluding
    if segments < 1:
        raise ValueError(
            f"{clients} clients cannot bear {colluding} that collude: at least {2 * colluding + 1}"
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
    parser.add_argument("--quick", action="store_true", help="the same: these are formulas")
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
            f"{found.told / 1e6:,.0f} MB",
            f"{found.multiplications:.1e}",
            f"{found.decoding:.1e}",
            f"{posted / 1e6:,.0f} MB",
        )
        print(f"| {' | '.join(cells)} |")
    if given.json is not None:
        given.json.write_text(json.dumps({"figures": figures, "ratios": {}}, indent=2) + "\n")


if __name__ == "__main__":
    main()
