"""Messages to sites' nodes over Flower's grid; nodes are known by their public keys alone."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid

from raydr.federation.failures import Kind
from raydr.runtimes.flower.errands import Failed

RECORD, CONTENT = "raydr", "message"
"""Names of the record and of its one entry, which holds a message's bytes."""

MESSAGE_TYPE = "query.raydr"

_ERRORS = {
    2: (Kind.CLIENT_RAISED, "its app ended with an error: the site's own log says why"),
    3: (Kind.TIMED_OUT, "the message was lost"),
    4: (Kind.TIMED_OUT, "no answer before the message expired"),
    5: (Kind.NODE_LOST, "its node is not connected"),
    8: (Kind.PROCESS_DIED, "its process ended"),
}
"""Kinds of failure by Flower's error code (``flwr.common.constant.ErrorCode``).

The reason that a node gives is not used: Flower puts the text of an exception there, which can name values of records.
"""


@dataclass(frozen=True)
class GridCourier:
    """Carries messages to nodes that the server knows.

    Attributes
    ----------
    grid : flwr.serverapp.Grid
        Flower's connection to the nodes.
    keys : mapping of name to bytes
        Public key of each site's node, in PEM.
    poll_s : float
        Seconds between two looks for answers.
    """

    grid: Grid
    keys: Mapping[str, bytes]
    poll_s: float = 0.25

    def exchange(self, messages: Mapping[str, bytes], timeout_s: float) -> dict[str, bytes | Failed]:
        """Return each site's answer, or why there is none, in ``timeout_s`` seconds at most.

        A node that is not connected may come back within this time.
        """
        deadline = time.monotonic() + timeout_s
        waiting = dict(messages)
        sent: dict[str, tuple[str, int]] = {}
        answers: dict[str, bytes | Failed] = {}
        while True:
            present = self._present() if waiting else {}
            ready = {site: node for site in waiting if (node := present.get(site)) is not None}
            if ready:
                sent |= self._pushed({site: waiting.pop(site) for site in ready}, ready, deadline)
            for message in self.grid.pull_messages(list(sent)) if sent else ():
                of_site = sent.pop(message.metadata.reply_to_message_id, None)
                if of_site is not None:
                    answers[of_site[0]] = _content(message, of_site[1])
            if (not waiting and not sent) or time.monotonic() >= deadline:
                break
            time.sleep(self.poll_s)
        answers |= {
            site: Failed(Kind.NODE_LOST, f"its node was not connected in {timeout_s:g} s") for site in waiting
        }
        answers |= {
            site: Failed(Kind.TIMED_OUT, f"no answer within {timeout_s:g} s") for site, _ in sent.values()
        }
        return answers

    def unknown(self) -> list[int]:
        """Return the connected nodes that are no site's. They are never asked."""
        known = set(self.keys.values())
        return [info.node_id for info in self.grid.get_nodes() if info.public_key not in known]

    def _present(self) -> dict[str, int]:
        """Return the node of each site that is connected."""
        site_of = {key: site for site, key in self.keys.items()}
        return {
            site_of[info.public_key]: info.node_id
            for info in self.grid.get_nodes()
            if info.public_key in site_of
        }

    def _pushed(
        self, messages: Mapping[str, bytes], nodes: Mapping[str, int], deadline: float
    ) -> dict[str, tuple[str, int]]:
        """Send messages, and return the site and node of each by its identity."""
        ttl = max(1.0, deadline - time.monotonic())
        made = [
            Message(
                RecordDict({RECORD: ConfigRecord({CONTENT: content})}),
                nodes[site],
                MESSAGE_TYPE,
                ttl=ttl,
            )
            for site, content in messages.items()
        ]
        identities: Iterable[str | None] = self.grid.push_messages(made)
        return {
            identity: (site, nodes[site])
            for identity, site in zip(identities, messages, strict=True)
            if identity is not None
        }


def _content(message: Message, node: int) -> bytes | Failed:
    """Return the bytes of an answer of this node."""
    if message.has_error():
        return Failed(*_ERRORS.get(message.error.code, (Kind.CLIENT_RAISED, "its node reports an error")))
    if message.metadata.src_node_id != node:
        return Failed(Kind.REFUSED, "another node answered")
    record = message.content.get(RECORD)
    content = record.get(CONTENT) if isinstance(record, ConfigRecord) else None
    return content if isinstance(content, bytes) else Failed(Kind.REFUSED, "the answer has no content")
