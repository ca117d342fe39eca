"""Messages to sites' nodes over Flower's grid; nodes are known by their public keys alone."""

from __future__ import annotations

import base64
import hashlib
import logging
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from threading import Thread

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_public_key
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid

from raydr.errors import RunError
from raydr.federation.failures import Kind
from raydr.runtimes.flower.errands import Failed

RECORD, CONTENT = "raydr", "message"
"""Names of the record and of its one entry, which holds a message's bytes."""

MESSAGE_TYPE = "query.raydr"

_LOGGER = logging.getLogger(__name__)

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
    grace_s : float
        Seconds that the SuperLink has to answer after the time of an exchange is over. Flower itself waits for it
        without limit.
    """

    grid: Grid
    keys: Mapping[str, bytes]
    poll_s: float = 0.25
    grace_s: float = 60.0
    _named: set[bytes] = field(default_factory=set, repr=False)

    def exchange(self, messages: Mapping[str, bytes], timeout_s: float) -> dict[str, bytes | Failed]:
        """Return each site's answer, or why there is none, in ``timeout_s`` seconds at most.

        A node that is not connected may come back within this time.

        Raises
        ------
        RunError
            If the SuperLink does not answer, or has ended the run.
        """
        found: SimpleQueue[dict[str, bytes | Failed] | Exception] = SimpleQueue()

        def work() -> None:
            try:
                found.put(self._exchanged(messages, timeout_s))
            except Exception as error:
                found.put(error)

        # A daemon, because Flower repeats a request to a silent SuperLink for ever.
        Thread(target=work, daemon=True).start()
        try:
            answers = found.get(timeout=timeout_s + self.grace_s)
        except Empty:
            raise RunError(
                f"Flower's SuperLink has not answered for {timeout_s + self.grace_s:g} s: look at its log, and start it"
                " again."
            ) from None
        if isinstance(answers, Exception):
            raise RunError(
                f"Flower's SuperLink has ended the run, or cannot be reached ({type(answers).__name__}: {answers})."
            ) from answers
        return answers

    def _exchanged(self, messages: Mapping[str, bytes], timeout_s: float) -> dict[str, bytes | Failed]:
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
            site: Failed(Kind.NODE_LOST, f"its node was not connected in {timeout_s:g} s{self._others()}")
            for site in waiting
        }
        answers |= {
            site: Failed(Kind.TIMED_OUT, f"no answer within {timeout_s:g} s") for site, _ in sent.values()
        }
        return answers

    def _others(self) -> str:
        """Return a remark on the nodes with other keys that were connected; empty without any."""
        names = sorted(map(fingerprint_of, self._named))
        return (
            f" (connected with a key that is no site's, and not asked: {', '.join(names)})" if names else ""
        )

    def _present(self) -> dict[str, int]:
        """Return the node of each site that is connected. Other nodes are named once in the log, and never asked."""
        site_of = {key: site for site, key in self.keys.items()}
        present = {}
        for info in self.grid.get_nodes():
            site = site_of.get(info.public_key)
            if site is not None:
                present[site] = info.node_id
            elif info.public_key not in self._named:
                self._named.add(info.public_key)
                _LOGGER.warning(
                    "node %d with the key %s is no site of this run, and is not asked",
                    info.node_id,
                    fingerprint_of(info.public_key),
                )
        return present

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


def fingerprint_of(key: bytes) -> str:
    """Return the fingerprint of a public key in PEM, as ``ssh-keygen -lf node.key.pub`` prints it."""
    try:
        line = load_pem_public_key(key).public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    except (ValueError, UnsupportedAlgorithm):
        return "unreadable key"
    digest = hashlib.sha256(base64.b64decode(line.split()[1])).digest()
    return f"SHA256:{base64.b64encode(digest).rstrip(b'=').decode()}"
