"""Flower's simulation in :mod:`benchmarks.rounds`, with the same arguments and output as its other systems.

Run ``python -m benchmarks.flower_rounds flower ROUNDS SETTING``; needs ``pip install 'flwr[simulation]==1.41'``.
"""

from __future__ import annotations

import argparse
import os
import time
from typing import Any, cast

os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")  # read when flwr is imported

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

from benchmarks.increment import Setting, Timing, incremented, require
from raydr.threads import cores


def client_app(setting: Setting) -> ClientApp:
    """Build the client: x + 1, with the weight of one example."""
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        arrays = cast(ArrayRecord, message.content["arrays"])
        reply = RecordDict(
            {
                "arrays": ArrayRecord(
                    [incremented(value, setting.work_s) for value in arrays.to_numpy_ndarrays()]
                ),
                "metrics": MetricRecord({"num-examples": 1}),
            }
        )
        return Message(content=reply, reply_to=message)

    return app


def server_app(setting: Setting, rounds: int, entered: list[float], left: list[float]) -> ServerApp:
    """Build the server: federated averaging over all clients. The evaluation of a round takes the time."""
    app = ServerApp()

    def evaluate(number: int, arrays: ArrayRecord) -> None:
        entered.append(time.perf_counter())
        # Weights of 1/clients do not add up to 1 exactly.
        require(arrays.to_numpy_ndarrays()[0], number, tolerance=1e-9 * number)
        left.append(time.perf_counter())

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        strategy: Any = FedAvg(
            fraction_evaluate=0.0, min_train_nodes=setting.clients, min_available_nodes=setting.clients
        )
        strategy.start(
            grid=grid,
            initial_arrays=ArrayRecord([setting.start()]),
            num_rounds=rounds,
            evaluate_fn=evaluate,
        )

    return app


def flower(setting: Setting, rounds: int) -> Timing:
    """Run one virtual client on each core at a time.

    Raises
    ------
    RuntimeError
        If rounds are missing, because Flower reports success even if clients failed.
    """
    entered: list[float] = []
    left: list[float] = []
    began = time.perf_counter()
    run_simulation(
        server_app(setting, rounds, entered, left),
        client_app(setting),
        num_supernodes=setting.clients,
        backend_config={
            "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
            # Its own Ray. Without an address, it would join a running one.
            "init_args": {"num_cpus": cores(), "address": "local"},
        },
    )
    if len(left) != rounds + 1:
        raise RuntimeError(f"Flower gave {len(left) - 1} of {rounds} rounds")
    seconds = [after - before for before, after in zip(left, entered[1:], strict=False)]
    return Timing(setting.name, entered[0] - began, seconds)


def main() -> None:
    """Run one setting, because Flower's simulation runs only once per process."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.flower_rounds", description=__doc__)
    parser.add_argument("system", choices=["flower"])
    parser.add_argument("rounds", type=int)
    parser.add_argument("setting", type=Setting.named)
    arguments = parser.parse_args()
    flower(arguments.setting, arguments.rounds).tell()


if __name__ == "__main__":
    main()
