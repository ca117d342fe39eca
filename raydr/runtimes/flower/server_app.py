"""Flower's app at the server: it hands over the connection to the nodes, and the settings of the run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp


def server_app(work: Callable[[Grid, Mapping[str, Any]], None]) -> ServerApp:
    """Return the app of the server.

    Parameters
    ----------
    work : callable
        Receives Flower's grid and the run's configuration (``flwr run --run-config``).
    """
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        work(grid, context.run_config)

    return app
