"""Memory model of a run: libraries and peak arrays of each process.

docs/plan.md describes the model, the measurement of its constants and its errors.
"""

from __future__ import annotations

from dataclasses import dataclass

from raydr.actors.packing import ACTOR_BYTES
from raydr.methods.novelty import LEAST_GROUP
from raydr.metrics import graph_size
from raydr.metrics.sampling import EXACT_ROWS
from raydr.metrics.sampling import SAMPLED_ROWS as SAMPLED
from raydr.metrics.structure import MOST_ROWS

MEGABYTE = 2**20

INTERPRETER = 60 * MEGABYTE
"""Python, numpy, scipy and raydr."""
RAY = 105 * MEGABYTE
"""Ray's library in each process, including shared pages."""
RAY_SERVICES = 500 * MEGABYTE
"""Ray's own processes on a node: raylet, control service, agents and idle workers."""
NEIGHBOURS = 135 * MEGABYTE
"""numba and the compiled neighbour search."""
LIBRARIES = {"phate": 150 * MEGABYTE}
OTHER_LIBRARY = 40 * MEGABYTE
"""Library of embedders that use only numba."""
SCIKIT_LEARN = 60 * MEGABYTE
"""Needed by most metrics."""
TORCH = 220 * MEGABYTE
LIGHT_METRICS = frozenset(
    {"npa", "trustworthiness", "continuity", "distance_error", "f_score", "f_score_published"}
)
"""Metrics that need neither scikit-learn nor blocks of distances, for any number of neighbours."""
BYTES_OF_A_NEIGHBOUR, BYTES_IN_TSNE = 56, 30
"""Bytes for each neighbour of a row, in the graph and in the embedder. The second is for t-SNE, where 25 were
measured with a million rows."""
SAMPLED_ROWS = 2_000
"""Rows among which metrics search for groups with four float64 matrices of all pairs."""
OF_A_SAMPLE = 20
"""Numbers for each row in addition to the table if metrics use a sample: the map, its tree, its clusters."""
BYTES_OF_A_PAIR = 16
"""Most bytes for a pair of rows if metrics use all rows. It depends on the share of pairs with a shared neighbour: 2
were measured for 10,000 rows of MNIST (0.14 of the pairs), 12 for normal numbers in 784 columns (all pairs)."""
BLOCK_BYTES = 96 * MEGABYTE
"""Maximum bytes of a block of distances in which metrics compare all pairs of rows, for each thread."""

SPARSE_COPIES, SPARSE_BLOCK_BYTES = 3, 64 * MEGABYTE
"""Sparse rows in double precision, by rows and by columns, over what is stored; a block of distances of each thread."""


@dataclass(kw_only=True, frozen=True)
class Load:
    """Quantities that determine the memory of a run.

    Attributes
    ----------
    rows, features : int
        Size of the data.
    itemsize : float
        Bytes of one number; of a sparse table, bytes of what is stored over all numbers.
    clients, largest : int
        Number of clients, and rows of the largest one.
    actors : int
        Number of client actors; 0 for a run in one process.
    posted : int
        Bytes of per-record messages that the server holds at once.
    message : int
        Bytes of the largest message of one client, up or down.
    embedder : str or None
        Embedder at the server; None if clients place their rows themselves.
    neighbours : int
        Neighbours of each row that the embedder needs.
    torch : bool
        Whether clients train an encoder.
    central : bool
        Whether the pooled-data map is drawn too.
    metrics : tuple of str
        Metrics of the evaluation.
    threads : int
        Threads of the evaluation.
    read : int
        Bytes of rows that are read before some are sampled or separated; 0 if all are mapped.
    held_out : int
        Rows that are placed on the finished map.
    coordinates : int
        Bytes of all coordinates at the server before it draws the map.
    server : int
        Other bytes of the server: :meth:`raydr.methods.method.MethodSettings.server_bytes`.
    sparse : bool
        Whether rows stay sparse.
    """

    rows: int
    features: int
    itemsize: float
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
    read: int = 0
    held_out: int = 0
    coordinates: int = 0
    server: int = 0
    sparse: bool = False

    @property
    def table(self) -> int:
        """Bytes of all rows."""
        return round(self.rows * self.features * self.itemsize)

    @property
    def references(self) -> int:
        """Bytes of the references for new rows, which are dense."""
        return 0 if self.embedder is None else 8 * self.rows // LEAST_GROUP * self.features

    @property
    def inline(self) -> bool:
        """Whether the run is one process."""
        return not self.actors

    @property
    def rows_of_actor(self) -> int:
        """Maximum number of rows of an actor."""
        return min(self.rows, self.largest * -(-self.clients // max(1, self.actors)))


@dataclass(frozen=True)
class ProcessMemory:
    """One kind of process.

    Attributes
    ----------
    process : str
        Name, as in ``peak_memory_bytes`` of environment.json.
    count : int
        Number of processes.
    bytes : int
        Peak resident memory of one process, including shared pages.
    arrays : int
        Bytes of it that are not libraries.
    """

    process: str
    count: int
    bytes: int
    arrays: int


def footprint(load: Load) -> tuple[ProcessMemory, ...]:
    """Return the peak memory of each kind of process, in the order in which a run starts them."""
    driver = _of_driver(load)
    if load.inline:
        # The parts run in sequence: libraries of all, table, and arrays of the largest part.
        libraries = INTERPRETER + sum(_all_libraries(load).values())
        parts = _of_server(load), _of_client(load, load.rows), _of_evaluation(load)
        arrays = max(_of_reading(load) + max(parts), driver)
        return (ProcessMemory("driver", 1, libraries + arrays, arrays),)
    base = INTERPRETER + RAY
    server, client = _of_server(load), _of_client(load, load.rows_of_actor)
    evaluation = _of_evaluation(load)
    return (
        ProcessMemory("driver", 1, base + driver, driver),
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
    """Return the memory need of a machine with this number of client actors, in bytes.

    With ``driver``, the machine also runs server and evaluation. The server ends before the evaluation starts, so only
    the larger one counts. Shared pages count once: an actor with its library adds
    :data:`~raydr.actors.packing.ACTOR_BYTES`, and Ray's store has one copy of the rows.
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


def _of_reading(load: Load) -> int:
    return max(3 * load.table, load.read + load.table)


def _of_driver(load: Load) -> int:
    return max(_of_reading(load), 3 * load.references)


def _of_server(load: Load) -> int:
    """Return bytes at the server: per-record messages, geometry, graph, other arrays of the method, messages."""
    graph = _of_graph(load)
    drawn = load.coordinates + max(graph, load.references)
    held = max(2 * load.posted, load.posted + load.coordinates, drawn)
    return held + 6 * load.message + load.server


def _of_graph(load: Load) -> int:
    """Return bytes of the neighbour graph and of the embedder's copy."""
    each = BYTES_IN_TSNE if load.embedder == "tsne" else BYTES_OF_A_NEIGHBOUR
    return load.rows * load.neighbours * each


def _of_client(load: Load, rows: int) -> int:
    """Return bytes of a client: rows as read and scaled, a float64 block, messages."""
    table = round(rows * load.features * load.itemsize)
    posted = load.posted * rows // max(1, load.rows)
    return 2 * table + min(8 * rows * load.features, 64 * MEGABYTE) + 2 * posted + 4 * load.message


def _of_evaluation(load: Load) -> int:
    """Return bytes of the evaluation: rows as read, scaled and in float64, graphs, blocks of distances."""
    looked_at = load.rows if load.rows <= EXACT_ROWS else SAMPLED
    graph = looked_at * graph_size(load.metrics) * 24
    precise = 8 * load.rows * (load.features if looked_at == load.rows else OF_A_SAMPLE)
    if load.sparse:
        precise = SPARSE_COPIES * load.table + load.threads * SPARSE_BLOCK_BYTES
    drawn = _of_graph(load) if load.central else 0
    blocks = load.threads * min(BLOCK_BYTES, 8 * looked_at * 1024) if _measured(load) else 0
    pairs = 32 * min(load.rows, SAMPLED_ROWS) ** 2 if _measured(load) else 0
    grouped = max((_grouped(metric, load) for metric in load.metrics), default=0)
    pairs = max(pairs, BYTES_OF_A_PAIR * grouped**2)
    new = round(load.held_out * load.features * (3 * load.itemsize + 8))
    return 3 * load.table + precise + new + graph + max(drawn, blocks) + pairs


def _grouped(metric: str, load: Load) -> int:
    """Return the number of rows among which a metric searches for groups; 0 if it uses none or a sample."""
    if not metric.endswith(("steadiness_all", "cohesiveness_all")):
        return 0
    rows = load.held_out if metric.startswith("new_") else load.rows
    return rows if rows <= MOST_ROWS else 0


def _measured(load: Load) -> bool:
    return not all(map(is_light, load.metrics))


def is_light(metric: str) -> bool:
    """Return whether a metric needs neither scikit-learn nor blocks of distances."""
    return metric.rstrip("_0123456789") in LIGHT_METRICS


Libraries = dict[str, int]
"""Bytes of the libraries of a process, by name."""


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
    """Return the libraries of a run in one process."""
    parts = (_libraries_of_server, _libraries_of_client, _libraries_of_evaluation)
    together: Libraries = {}
    for part in parts:
        together |= part(load)
    return together
