"""Backend that runs a simulation on Ray: clients, coordinator and evaluation as actors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from secrets import token_hex
from typing import Any

from ray.actor import ActorHandle
from ray.exceptions import RayActorError, RayError, RayTaskError

from raydr.actors.cluster import connected
from raydr.actors.coordinator import Coordinator, Evaluation
from raydr.actors.idle import IdleActors, of_this_process
from raydr.actors.packing import Packing, evaluates_early, gpu_share, seating
from raydr.actors.placement import place, require_portable_nodes, require_room, rows_bytes
from raydr.actors.ray_health import Vitals, dead_parts_named
from raydr.actors.resources import Room, within_room
from raydr.actors.sites import count_sites, lay_out_sites, pool
from raydr.actors.streaming import heard
from raydr.actors.transport import RayTransport
from raydr.arrays import FloatArray
from raydr.data import Census, Layout, Site, SiteFile
from raydr.device import Device, Found, built_for_gpus
from raydr.errors import RunError, ScenarioError
from raydr.federation.client import HostSecrets
from raydr.journal import Charged, CheckpointTaken, Event, IncidentEvent, Listener, Seated
from raydr.methods.serving import Plan, Served
from raydr.privacy.policy import SitePolicy


@dataclass
class RayBackend:
    """A connection to Ray that runs the parts of a simulation.

    Attributes
    ----------
    packing : {"auto", "per-client"} or int
        See :func:`raydr.actors.packing.seating`.
    timeout_s : float
        Seconds that an actor has for one call.
    device : {"cpu", "cuda"}
        Device for large products; processes share the GPUs equally.
    peak_memory_bytes : dict of process name to int
        Filled in as parts end.
    """

    packing: Packing = "auto"
    timeout_s: float = 600.0
    device: Found = "cpu"
    actors: int = 0
    peak_memory_bytes: dict[str, int] = field(default_factory=dict)
    _early: tuple[ActorHandle[Any], dict[str, Any]] | None = field(default=None, repr=False)

    name = "ray"

    def prepare_evaluation(self, libraries: Callable[[], object], values: int) -> None:
        """Start the evaluation's process and call ``libraries`` there, while clients and server compute.

        A process with a part of a GPU starts only when it has work. See
        :func:`raydr.actors.packing.evaluates_early` for ``values``.
        """
        if self.device == "cpu" and evaluates_early(values, Room.here().memory_bytes):
            options = self._evaluation_options()
            process = of_this_process().take(Evaluation, options)
            process.load.remote(libraries)
            self._early = process, options

    def close(self) -> None:
        """Give back an evaluation's process that got no work. Ray may be gone by now, so it is asked nothing."""
        if self._early is not None:
            process, options = self._early
            of_this_process().give(process, Evaluation, options)

    @dead_parts_named()
    def serve(
        self,
        parts: Sequence[FloatArray | Site],
        plan: Plan,
        *,
        listener: Listener,
        host_secrets: HostSecrets | None = None,
        policies: Sequence[SitePolicy] = (),
        checkpoint: bytes | None = None,
        released: Sequence[str] = (),
    ) -> Served:
        """Place the clients and run the server part; a coordinator that dies continues from its checkpoint.

        Raises
        ------
        ScenarioError
            If the clients do not fit into the run's resources.
        RunError
            If the coordinator died more often than the policy retries.
        """
        room = Room.here()
        packing = "per-client" if any(isinstance(part, Site) for part in parts) else self.packing
        seated = seating(
            len(parts), packing, room.cores, room.memory_bytes, rows_bytes(parts), batched=plan.batch_clients
        )
        require_room(parts, seated.actors, room)
        listener(Seated(seated.line))
        share = self._gpu_share(room, seated.actors)
        placements = place(
            parts, seated.actors, room, host_secrets=host_secrets, policies=policies, gpu_share=share
        )
        self.actors = len(placements)
        options, idle = room.on_this_node(share), of_this_process()
        latest, lines = checkpoint, list(released)

        def hear(event: Event) -> None:
            nonlocal latest
            if isinstance(event, CheckpointTaken):
                latest = event.content
            listener(event)
            if isinstance(event, Charged):
                lines.append(event.line)
                coordinator.kept.remote()

        for attempt in range(plan.policy.retries + 1):
            if attempt:
                plan = replace(plan, start=token_hex(8))
            try:
                with idle.lent(Coordinator, options) as coordinator:
                    transport = RayTransport(
                        placements=placements,
                        seed=plan.seed,
                        faults=plan.faults,
                        timeout_s=self.timeout_s,
                        run=plan.run,
                        device=self.device,
                        idle=IdleActors(idle.keep),
                    )
                    stream = coordinator.serve.options(num_returns="streaming").remote(
                        transport, len(parts), plan, latest, lines
                    )
                    served, peaks = heard(stream, hear)
            except RayActorError:
                Vitals().require()
                start = "its last checkpoint" if latest is not None else "the start"
                listener(
                    IncidentEvent(
                        f"the coordinator's process ended: attempt {attempt + 2} continues from {start}"
                    )
                )
            else:
                self.peak_memory_bytes |= peaks
                return served  # type: ignore[no-any-return]
        raise RunError(
            f"The coordinator's process ended {plan.policy.retries + 1} times. Check whether its node ran out of"
            " memory, or whether something kills the process."
        )

    def _gpu_share(self, room: Room, actors: int) -> float:
        """Return the part of a GPU for each process: client actors, coordinator and evaluation."""
        return gpu_share(room.gpus, actors + 2) if self.device == "cuda" else 0.0

    def _evaluation_options(self) -> dict[str, Any]:
        room = Room.here()
        share = self._gpu_share(room, self.actors)
        return {"num_cpus": 0} if room.group is None and not share else room.on_this_node(share)

    @dead_parts_named()
    def lay_out_sites(self, files: Sequence[tuple[SiteFile, str | None]]) -> Layout:
        """See :func:`raydr.actors.sites.lay_out_sites`."""
        return lay_out_sites(files)

    @dead_parts_named()
    def count_sites(self, files: Sequence[tuple[SiteFile, str | None]]) -> list[Census]:
        """See :func:`raydr.actors.sites.count_sites`."""
        return count_sites(files)

    @dead_parts_named()
    def pool(self, sites: Sequence[Site]) -> Callable[[], FloatArray]:
        """See :func:`raydr.actors.sites.pool`."""
        return pool(sites)

    @dead_parts_named()
    def evaluate(self, work: Callable[..., Any], *arguments: Any, listener: Listener) -> Any:
        """Call ``work(*arguments, listener=...)`` in its own process, and once again if that ends.

        Raises
        ------
        RunError
            If its process ended twice.
        """
        retried, idle = False, of_this_process()
        while True:
            early, self._early = self._early, None
            taken, options = early or (None, self._evaluation_options())
            try:
                with idle.lent(Evaluation, options, taken) as process:
                    stream = process.evaluate.options(num_returns="streaming").remote(
                        work, arguments, self.device
                    )
                    result, peak = heard(stream, listener)
                break
            except RayTaskError:
                raise
            except RayError as error:
                Vitals().require()
                if retried:
                    raise RunError(
                        "The evaluation's process ended twice, after the federated map was computed. The usual"
                        " cause is lack of memory, because the evaluation holds all rows in one place. Free"
                        " memory, evaluate fewer rows (data.rows), or leave out what needs most memory: compare,"
                        " or some of metrics."
                    ) from error
                retried = True
                listener(
                    IncidentEvent("the evaluation's process ended: it is restarted once, on the same map")
                )
        self.peak_memory_bytes["evaluation"] = peak
        return result


@contextmanager
def ray_backend(
    address: str | None,
    packing: Packing,
    timeout_s: float,
    device: Device = "cpu",
    *,
    portable: bool = False,
) -> Iterator[RayBackend]:
    """Connect to Ray for the length of a ``with`` block; ``portable`` checks that all nodes compute alike.

    Raises
    ------
    ScenarioError
        If a GPU is required and there is none, or if a node is not portable.
    """
    with connected(address), within_room() as room:
        if portable:
            require_portable_nodes()
        backend = RayBackend(packing, timeout_s, _found_in(room, device))
        try:
            yield backend
        finally:
            backend.close()


def _found_in(room: Room, device: Device) -> Found:
    """Return the device to use; raise ScenarioError if a GPU is required and Ray finds none."""
    if device == "cpu" or (room.gpus < 1 and device == "auto"):
        return "cpu"
    if room.gpus < 1:
        raise ScenarioError(
            f"runtime.device is cuda, but Ray finds no GPU in the {room.name}. Set it to auto or cpu, or start Ray"
            " on a machine with a GPU."
        )
    return "cuda" if built_for_gpus() or device == "cuda" else "cpu"
