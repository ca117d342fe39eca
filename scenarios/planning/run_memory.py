"""Memory that a run will need, process by process: what it loads, and the arrays that it holds at its fullest.

docs/plan.md tells the model, how its constants were measured, and how far it was off.
"""

from __future__ import annotations

from dataclasses import dataclass

from raydr.actors.packing import ACTOR_BYTES
from raydr.metrics import graph_size
from raydr.metrics.sampling import EXACT_ROWS
from raydr.metrics.sampling import SAMPLED_ROWS as SAMPLED
from raydr.metrics.structure import MOST_ROWS

MEGABYTE = 2**20

INTERPRETER = 60 * MEGABYTE
"""Python, numpy, scipy and raydr."""
RAY = 105 * MEGABYTE
"""Ray's library in each of its processes, pages included that all of them share."""
RAY_SERVICES = 500 * MEGABYTE
"""Ray's own processes on a node: raylet, control service, agents, and workers that wait."""
NEIGHBOURS = 135 * MEGABYTE
"""numba, and the compiled search for neighbours."""
LIBRARIES = {"tsne": 70 * MEGABYTE, "umap": 150 * MEGABYTE, "phate": 150 * MEGABYTE}
OTHER_LIBRARY = 40 * MEGABYTE
"""Of embedders compiled by numba alone."""
SCIKIT_LEARN = 60 * MEGABYTE
"""Which most metrics need, and whoever reads a data set that comes with it."""
TORCH = 220 * MEGABYTE
LIGHT_METRICS = frozenset({"npa", "trustworthiness", "continuity", "distance_error", "f_score"})
"""Metrics that need neither, of any number of neighbours."""
BYTES_OF_A_NEIGHBOUR, BYTES_OF_AN_INTERPOLATED_ONE = 70, 30
"""Of the neighbour graph, and of what t-SNE and UMAP make of it, for each neighbour of a row; of t-SNE that is laid out
by interpolation, 25 were measured of a million rows."""
INTERPOLATED_ROWS = 10_000
"""From which on t-SNE is."""
SAMPLED_ROWS = 2_000
"""Among which metrics look for groups by matrices of all pairs, four of doubles."""
OF_A_SAMPLE = 20
"""Numbers for each row beside the table, where metrics look at a sample: the map, its tree, its clusters."""
BYTES_OF_A_PAIR = 16
"""Of rows that share neighbours, where all rows are looked at: 12 were measured among 10,000 of MNIST."""
BLOCK_BYTES = 96 * MEGABYTE
"""Blocks of distances in which metrics look at all pairs of rows, at most, for each thread."""


@dataclass(kw_only=True, frozen=True)
class Load:
    """What a run's memory follows from.

    Attributes
    ----------
    rows, features, itemsize : int
        Of the data, and bytes of a number.
    clients, largest : int
        How many, and rows of the largest client.
    actors : int
        0 for a run in one process.
    posted : int
        Bytes that the server holds at once of what clients post of each record.
    message : int
        Bytes of the largest message of one client, up or down.
    embedder : str or None
        Draws the map at the server; None where clients place their rows themselves.
    neighbours : int
        Of each row, that it needs.
    torch : bool
        Whether clients train an encoder.
    central : bool
        Whether the pooled rows are drawn too.
    metrics : tuple of str
        That the evaluation computes.
    threads : int
        Of the evaluation.
    bundled : bool
        Whether the data come with scikit-learn, which the driver then loads.
    read : int
        Bytes of the rows that are read before some are drawn or set apart; 0 where all are mapped.
    held_out : int
        Rows that are placed on the map once it is drawn.
    copies : int
        Of the coordinates of all rows, in double precision, that the server makes before it draws them.
    server : int
        Bytes that the server holds besides: :meth:`raydr.methods.method.MethodSettings.server_bytes`.
    """

    rows: int
    features: int
    itemsize: int
    clients: int
    largest: int
    actors: int
    posted: int
    message: int
    embedder: str | None
    neighbours: int
    torch: bool
    central: bool
    metrics: tuple[str, ...]
    threads: int = 1
    bundled: bool = False
    read: int = 0
    held_out: int = 0
    copies: int = 2
    server: int = 0

    @property
    def table(self) -> int:
        """Bytes of all rows."""
        return self.rows * self.features * self.itemsize

    @property
    def inline(self) -> bool:
        """Whether everything is one process."""
        return not self.actors

    @property
    def rows_of_actor(self) -> int:
        """Rows of the fullest actor, at most."""
        return min(self.rows, self.largest * -(-self.clients // max(1, self.actors)))


@dataclass(frozen=True)
class ProcessMemory:
    """One kind of process.

    Attributes
    ----------
    process : str
        As ``peak_memory_bytes`` of environment.json has it.
    count : int
        How many there are.
    bytes : int
        Largest resident memory of one of them, shared pages included.
    arrays : int
        How much of it is not libraries.
    """

    process: str
    count: int
    bytes: int
    arrays: int


def footprint(load: Load) -> tuple[ProcessMemory, ...]:
    """Return the peak of each kind of process, in the order in which a run starts them."""
    driver = _of_driver(load)
    if load.inline:
        # One part after the other: libraries of all, arrays of the fullest beside the table.
        libraries = INTERPRETER + sum(_all_libraries(load).values())
        arrays = driver + max(_of_server(load), _of_client(load, load.rows), _of_evaluation(load))
        return (ProcessMemory("driver", 1, libraries + arrays, arrays),)
    base = INTERPRETER + RAY
    server, client = _of_server(load), _of_client(load, load.rows_of_actor)
    evaluation = _of_evaluation(load)
    return (
        ProcessMemory("driver", 1, base + sum(_libraries_of_driver(load).values()) + driver, driver),
        ProcessMemory("coordinator", 1, base + sum(_libraries_of_server(load).values()) + server, server),
        ProcessMemory(
            "largest client actor",
            load.actors,
            base + sum(_libraries_of_client(load).values()) + client,
            client,
        ),
        ProcessMemory(
            "evaluation", 1, base + sum(_libraries_of_evaluation(load).values()) + evaluation, evaluation
        ),
    )


def node_bytes(load: Load, actors: int, *, driver: bool) -> int:
    """Memory that one machine needs which hosts so many client actors; with the driver go server and evaluation.

    The server has ended when the evaluation begins, so the larger of the two counts. Pages that processes share count
    once: an actor with its library is :data:`~raydr.actors.packing.ACTOR_BYTES` more, and the rows in Ray's store are
    one copy.
    """
    by_name = {process.process: process for process in footprint(load)}
    if load.inline:
        return by_name["driver"].bytes
    client = by_name["largest client actor"]
    each = ACTOR_BYTES + client.bytes - (INTERPRETER + RAY)
    everyone = actors * each
    rows_here = load.table * actors // max(1, load.actors)
    if not driver:
        return RAY_SERVICES + everyone + rows_here
    server, evaluation = by_name["coordinator"].bytes, by_name["evaluation"].bytes
    return (
        RAY_SERVICES + by_name["driver"].bytes + rows_here + max(server + everyone + load.posted, evaluation)
    )


def _of_driver(load: Load) -> int:
    return max(3 * load.table, load.read + load.table)


def _of_server(load: Load) -> int:
    """Posted blocks and what geometry is made of them, the graph, what else the method holds, and a few messages."""
    coordinates = 0 if load.embedder is None else load.copies * 8 * load.rows * load.features
    graph = _of_graph(load)
    held = max(2 * load.posted, load.posted + coordinates, coordinates + graph)
    return held + 6 * load.message + load.server


def _of_graph(load: Load) -> int:
    """The neighbour graph, and what an embedder makes of it."""
    interpolated = load.embedder == "tsne" and load.rows >= INTERPOLATED_ROWS
    each = BYTES_OF_AN_INTERPOLATED_ONE if interpolated else BYTES_OF_A_NEIGHBOUR
    return load.rows * load.neighbours * each


def _of_client(load: Load, rows: int) -> int:
    """Its rows as they came and as scaled, a block in double precision, and its messages."""
    table = rows * load.features * load.itemsize
    posted = load.posted * rows // max(1, load.rows)
    return 2 * table + min(8 * rows * load.features, 64 * MEGABYTE) + 2 * posted + 4 * load.message


def _of_evaluation(load: Load) -> int:
    """Rows as read, as scaled and in double precision, graphs, and blocks of distances."""
    looked_at = load.rows if load.rows <= EXACT_ROWS else SAMPLED
    graph = looked_at * graph_size(load.metrics) * 24
    precise = 8 * load.rows * (load.features if looked_at == load.rows else OF_A_SAMPLE)
    drawn = _of_graph(load) if load.central else 0
    blocks = load.threads * min(BLOCK_BYTES, 8 * looked_at * 1024) if _measured(load) else 0
    pairs = 32 * min(load.rows, SAMPLED_ROWS) ** 2 if _measured(load) else 0
    grouped = max((_grouped(metric, load) for metric in load.metrics), default=0)
    pairs = max(pairs, BYTES_OF_A_PAIR * grouped**2)
    new = load.held_out * load.features * (3 * load.itemsize + 8)
    return 3 * load.table + precise + new + graph + max(drawn, blocks) + pairs


def _grouped(metric: str, load: Load) -> int:
    """Rows among all of which a metric looks for groups; 0 where it looks at none, or at a sample."""
    if not metric.endswith(("steadiness_all", "cohesiveness_all")):
        return 0
    rows = load.held_out if metric.startswith("new_") else load.rows
    return rows if rows <= MOST_ROWS else 0


def _measured(load: Load) -> bool:
    return not all(map(is_light, load.metrics))


def is_light(metric: str) -> bool:
    """Whether a metric of this name needs neither scikit-learn nor blocks of distances."""
    return metric.rstrip("_0123456789") in LIGHT_METRICS


Libraries = dict[str, int]
"""What a process loads by name, and bytes of each."""


def _libraries_of_driver(load: Load) -> Libraries:
    return {"scikit-learn": SCIKIT_LEARN} if load.bundled else {}


def _libraries_of_server(load: Load) -> Libraries:
    if load.embedder is None:
        return {"torch": TORCH} if load.torch else {}
    return {"numba": NEIGHBOURS, load.embedder: LIBRARIES.get(load.embedder, OTHER_LIBRARY)}


def _libraries_of_client(load: Load) -> Libraries:
    return {"numba": NEIGHBOURS, "torch": TORCH} if load.torch else {}


def _libraries_of_evaluation(load: Load) -> Libraries:
    measures = {"scikit-learn": SCIKIT_LEARN} if _measured(load) else {}
    drawn = _libraries_of_server(load) if load.central else {}
    return {"numba": NEIGHBOURS} | drawn | measures


def _all_libraries(load: Load) -> Libraries:
    """Of one process that does everything."""
    parts = (_libraries_of_server, _libraries_of_client, _libraries_of_evaluation)
    together = _libraries_of_driver(load)
    for part in parts:
        together |= part(load)
    return together
