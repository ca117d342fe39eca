"""Seconds and bytes of an exchange in one process, over Ray's actors and over Flower's simulation engine.

    python -m benchmarks.runtimes [--quick] [--nodes N ...] [--json FILE]

Sites with 40 rows of six columns each: the range, mean and spread of the columns, and three rounds of landmarks, by
secure sums. An exchange is one message to each site and its answers. ``exchanges`` are all of them, ``ms`` is the
median time of one, and ``kB`` are the bytes of one to and from a site, on average, by the ledger. ``kB sent`` are the
bytes of Flower's messages. Each run has its own process. Flower's engine runs the ``ClientApp`` of a site on Ray's
workers: no process starts for a message, and there is no TLS. ``--quick`` takes 4 nodes. Without
``flwr[simulation]``, Flower is left out.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
from pathlib import Path

from benchmarks.processes import printed_lines

NODES = (4, 20, 100)
MODULES = {
    "inline": "benchmarks.runtime_systems",
    "ray": "benchmarks.runtime_systems",
    "flower": "benchmarks.flower_runtime",
}
_TIMEOUT_S = 1800.0


def measured(system: str, nodes: int) -> dict[str, float]:
    """Return the figures of one system, from a process of its own."""
    ((line, _),) = printed_lines(MODULES[system], system, str(nodes), timeout_s=_TIMEOUT_S)
    found: dict[str, float] = json.loads(line)
    return found


def main() -> None:
    """Print one line for each number of nodes and system."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.runtimes",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--quick", action="store_true", help="4 nodes")
    parser.add_argument("--nodes", type=int, nargs="+", metavar="N", help="numbers of nodes")
    parser.add_argument("--json", type=Path, help="also write figures and ratios to this file")
    arguments = parser.parse_args()
    systems = list(MODULES)
    if importlib.util.find_spec("flwr") is None:
        print("Flower is not installed, so its lines are omitted. Install it: pip install 'raydr[flower]'")
        systems.remove("flower")
    figures: dict[str, float] = {}
    ratios: dict[str, float] = {}
    print(f"{'nodes':>5} {'system':<8}{'exchanges':>10}{'ms':>10}{'kB':>8}{'kB sent':>9}")
    for nodes in arguments.nodes or (NODES[:1] if arguments.quick else NODES):
        for system in systems:
            found = measured(system, nodes)
            sent = f"{found['kB_sent']:>9.2f}" if "kB_sent" in found else ""
            line = f"{nodes:>5} {system:<8}{found['exchanges']:>10.0f}{found['ms']:>10.2f}{found['kB']:>8.2f}"
            print(line + sent, flush=True)
            figures |= {f"{nodes}.{system}.{name}": round(value, 3) for name, value in found.items()}
            if system != "inline":
                ratio = found["ms"] / figures[f"{nodes}.inline.ms"]
                ratios[f"{system}/inline.{nodes}"] = round(ratio, 3)
    if arguments.json is not None:
        arguments.json.write_text(json.dumps({"figures": figures, "ratios": ratios}, indent=2) + "\n")


if __name__ == "__main__":
    main()
