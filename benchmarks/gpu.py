"""Speed-up by a GPU: the stages that `runtime.device` moves there, each compared with the cores.

    python -m benchmarks.gpu [--quick] [--repeats 3] [--json FILE]

The stages are: gradients of the discrepancy of 40,000 rows x 784 to 500 landmarks; distances to these, and
coordinates from them; the exact 15 nearest neighbours of 50,000 rows x 50; ten iterations of SMACOF on 2,000
rows x 784 that see 200 anchors and each other; the median round of FedNE on 4,000 rows x 784 at 20 clients as
one. Both devices run in one process and in turns. Results are medians, with transfers included, after one
warm-up that starts the GPU's libraries. Figures are ``STAGE.cpu_s`` and ``STAGE.cuda_s``, and
``STAGE.apart``, the difference of their results over the largest value. Ratios are the processor's seconds
over the GPU's. Without a GPU, it prints so and has no figures. ``--quick`` uses a tenth of the rows, once.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import raydr
from raydr.device import Found, computing_on
from raydr.threads import cores

Stage = Callable[[], NDArray[Any]]
DEVICES: tuple[Found, ...] = ("cpu", "cuda")


def stages(share: float) -> dict[str, Stage]:
    """Return the stages to time, each with this share of its rows."""
    from raydr.geometry.neighbors import nearest_neighbors
    from raydr.geometry.points import Points, squared_distances
    from raydr.geometry.trilateration import trilaterate
    from raydr.methods.landmarks.kernel import cross_term
    from raydr.methods.sense.smacof import random_start, smacof

    random = np.random.default_rng(0)

    def drawn(rows: int, features: int) -> NDArray[np.float32]:
        return random.normal(size=(rows, features)).astype(np.float32)

    rows, landmarks = drawn(int(40_000 * share), 784), drawn(500, 784).astype(np.float64)
    near = drawn(int(50_000 * share), 50)
    own, anchors = drawn(int(2_000 * share), 784).astype(np.float64), landmarks[:200]
    squared = squared_distances(own, anchors)
    start = random_start(anchors, squared, random)
    return {
        "gradients": lambda: cross_term(rows, landmarks, 1.0 / 784)[1],
        "distances, trilateration": lambda: trilaterate(
            landmarks, [np.asarray(squared_distances(rows.astype(np.float64), landmarks))]
        )[0],
        "exact neighbours": lambda: nearest_neighbors(Points(near), 15).distances,
        "SMACOF": lambda: (
            smacof(anchors, squared, start, inside=own, tolerance=0.0, max_iterations=10).coordinates
        ),
    }


def timed(stage: Stage, device: Found) -> tuple[float, NDArray[Any]]:
    """Return the seconds of a stage, and its result."""
    with computing_on(device):
        began = time.perf_counter()
        found = stage()
        return time.perf_counter() - began, found


def round_together(rows: int, device: Found) -> tuple[float, NDArray[Any]]:
    """Return the median round of a run of ten in this process, and its map."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "rows.npy"
        np.save(file, np.random.default_rng(0).normal(size=(rows, 784)).astype(np.float32))
        result = raydr.run(
            {
                "name": "gpu",
                "data": {"path": str(file)},
                "clients": {"count": 20},
                "method": {"kind": "fedne", "rounds": 10},
                "runtime": {"federation": "inline", "batch_clients": True, "device": device},
                "metrics": [],
            },
            out=Path(folder) / "run",
        )
        lines = (Path(folder) / "run" / "rounds.jsonl").read_text(encoding="utf-8").splitlines()
        return statistics.median(json.loads(line)["seconds"] for line in lines[1:]), result.embedding


def main() -> None:
    """Measure, print a table, and write the figures."""
    import torch

    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gpu",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--quick", action="store_true", help="a tenth of the rows, once")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    options = parser.parse_args()
    figures: dict[str, float] = {}
    ratios: dict[str, float] = {}
    if not torch.cuda.is_available():
        print("torch finds no GPU here, so there is nothing to compare.")
    else:
        print(f"{torch.cuda.get_device_name()}, and {cores()} cores")
        print(f"{'':<28}{'cores, s':>10}{'GPU, s':>10}{'ratio':>8}{'apart':>10}")
        share = 0.1 if options.quick else 1.0
        timers: dict[str, Callable[[Found], tuple[float, NDArray[Any]]]] = {
            name: partial(timed, stage) for name, stage in stages(share).items()
        }
        timers["FedNE, clients as one"] = partial(round_together, int(4_000 * share))
        for name, timer in timers.items():
            on = {device: timer(device)[1] for device in DEVICES}
            apart = float(np.abs(on["cpu"] - on["cuda"]).max() / np.abs(on["cpu"]).max())
            seconds: dict[Found, list[float]] = {device: [] for device in DEVICES}
            for _ in range(1 if options.quick else options.repeats):
                for device, taken in seconds.items():
                    taken.append(timer(device)[0])
            ours = {device: statistics.median(taken) for device, taken in seconds.items()}
            figures |= {f"{name}.{device}_s": round(value, 5) for device, value in ours.items()}
            figures[f"{name}.apart"] = apart
            ratios[f"cpu/cuda.{name}"] = round(ours["cpu"] / ours["cuda"], 3)
            print(
                f"{name:<28}{ours['cpu']:>10.4f}{ours['cuda']:>10.4f}{ratios[f'cpu/cuda.{name}']:>8.1f}{apart:>10.1e}"
            )
    if options.json is not None:
        options.json.write_text(json.dumps({"figures": figures, "ratios": ratios}, indent=2) + "\n")


if __name__ == "__main__":
    main()
