"""A host cannot derive another client's secrets, masks or noise from what it receives."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from inline_federations import GROUP, KNOWN, known

from raydr.arrays import Float64Array, FloatArray
from raydr.errors import RaydrError, RunError
from raydr.federation import (
    ClientError,
    ClientHost,
    Context,
    Federation,
    HostedClient,
    InlineTransport,
    fingerprint,
)
from raydr.federation.agreement import (
    Agreed,
    HandOutRequest,
    OpenRequest,
    OpenRequests,
    PublicKey,
    SealedSecret,
)
from raydr.federation.client import HostSecrets
from raydr.federation.codec import encode
from raydr.federation.secure import SecureSums
from raydr.federation.sums import Total
from raydr.federation.wire import Answer, Answered, Call, SumCall, history_at
from raydr.journal import Journal
from raydr.methods.landmarks.learning import StepRequest
from raydr.methods.landmarks.maps import FedTSNE
from raydr.methods.serving import Plan, serve
from raydr.privacy.gaussian import GaussianNoise
from raydr.privacy.masking import MaskingError, advertise, hand_out, receive
from raydr.privacy.masking.agreement import agree, own_key
from raydr.privacy.masking.keys import derive
from raydr.privacy.mechanism import Coverage
from raydr.privacy.secrets import Secret, client_secret
from raydr.statistics.keying import Keyed, key_rows, opened

RUN = "a run"
CLIENTS = 5
PARTS = [np.random.default_rng(client).normal(size=(20 + client, 3)) for client in range(CLIENTS)]
NOISE = GaussianNoise(on="gradient", multiplier=1.0, per="sum")


def as_sent(message: Any) -> Any:
    return message


@dataclass
class Watched(InlineTransport):
    """Keep all calls as each host receives them and all answers; optionally change them on the way."""

    reported: dict[int, list[bytes]] = field(default_factory=dict)
    received: list[bytes] = field(default_factory=list)
    sums: list[SumCall] = field(default_factory=list)
    relayed: Callable[[Call], Call] = field(default=as_sent)
    answered: Callable[[Answer], Answer] = field(default=as_sent)

    def ask(self, call: Call) -> list[Answer]:
        answers = [self.answered(answer) for answer in super().ask(self.relayed(call))]
        self.received.append(pickle.dumps(answers))
        return answers

    def sum(self, call: SumCall) -> Iterator[Any]:
        self.sums.append(call)
        for part in super().sum(call):
            self.received.append(pickle.dumps(part))
            yield part

    def _parts(self, call: Any) -> list[tuple[ClientHost, Any]]:
        parts = super()._parts(call)
        for host, part in parts:
            self.reported.setdefault(host.clients[0], []).append(pickle.dumps(part))
        return parts


def apart(parts: list[FloatArray] = PARTS, **options: Any) -> Watched:
    """Return a transport with one host per client."""
    hosted = [HostedClient(client, rows, fingerprint(rows)) for client, rows in enumerate(parts)]
    return Watched(
        [ClientHost(hosted=[each], seed=0, run=RUN, host_secrets=known([each])) for each in hosted], **options
    )


def keyed(transport: Watched) -> Federation:
    return Federation(transport, CLIENTS, Context(seed=0, run=RUN))


# ------------------------------------------------------------------------------------- noise stays on


@dataclass(frozen=True)
class Release:
    """Return a noisy mean, the mean without noise, and the call for it."""

    request: StepRequest
    call: SumCall
    noisy: Float64Array
    clean: Float64Array

    def without(self, secrets: dict[int, Secret]) -> float:
        """Return the RMS error after subtracting the noise of these clients under these secrets."""
        found = self.noisy.copy()
        for client, secret in secrets.items():
            found -= self._mean(client, secret, self.request) - self._mean(
                client, secret, replace(self.request, mechanism=None)
            )
        return float(np.sqrt(((found - self.clean) ** 2).mean()))

    def _mean(self, client: int, secret: Secret, request: StepRequest) -> Float64Array:
        """Return the noise of a client with this secret, for an adversary that knows its rows."""
        rows, call = PARTS[client], replace(self.call, request=request)
        host = ClientHost(
            hosted=[HostedClient(client, rows, fingerprint(rows))],
            seed=0,
            run=RUN,
            host_secrets=HostSecrets({client: secret}),
        )
        total = Total()
        total.add(host.sum(replace(call, clients=(client,), masks=None)))
        return np.asarray(total.decoded(call, sum(map(len, PARTS))).direction)  # type: ignore[attr-defined]


def secrets_in(content: Any, seen: set[int]) -> list[Secret]:
    """Return all secrets in an object and what it refers to."""
    if id(content) in seen:
        return []
    seen.add(id(content))
    if isinstance(content, Secret):
        return [content]
    inner = (
        [*content.keys(), *content.values()]
        if isinstance(content, dict)
        else list(content)
        if isinstance(content, (list, tuple, set, frozenset))
        else list(getattr(content, "__dict__", {}).values())
    )
    return [secret for each in inner for secret in secrets_in(each, seen)]


def test_hosts_cannot_subtract_the_noise_of_others() -> None:
    """With the root secret the attack is exact. A client knows only its own share of the noise."""
    transport = apart()
    federation = Federation(transport, CLIENTS, Context(seed=0, run=RUN, secure=SecureSums()))
    federation.agree()
    landmarks = np.random.default_rng(9).normal(size=(4, 3))
    request = StepRequest(
        landmarks=landmarks,
        gamma=0.5,
        step=1.0,
        local_steps=1,
        share="gradient",
        mechanism=NOISE,
        objective=False,
    )
    noisy = federation.mean(request, weights="rows").direction
    clean = keyed(apart()).mean(replace(request, mechanism=None), weights="rows").direction
    release = Release(request, transport.sums[-1], noisy, clean)
    noise = release.without({})
    assert noise > 1e-3
    assert release.without({client: client_secret(KNOWN, client) for client in range(CLIENTS)}) < 1e-11
    for own, host in enumerate(transport.hosts):
        found = secrets_in(pickle.loads(pickle.dumps(host)), set())
        assert client_secret(KNOWN, own) in found
        assert release.without({own: client_secret(KNOWN, own)}) != noise
        others = [client for client in range(CLIENTS) if client != own]
        for secret in found:
            for taken in ({client: client_secret(secret, client) for client in others},
                          dict.fromkeys(others, secret)):  # fmt: skip
                assert release.without(taken) > 0.5 * noise


def keys_of_others(own: int) -> list[bytes]:
    """Return the root and the keys of masks, noise and boxes of all clients but one, and of each pair."""
    others = [client for client in range(CLIENTS) if client != own]
    agreed = [pair for client in others for other, pair in pairs_of(client).items() if other != own]
    masking = [own_key(client_secret(KNOWN, client).key("masking"), RUN, client) for client in others]
    secrets = [KNOWN, *(client_secret(KNOWN, client) for client in others)]
    derived = [secret.key(name) for secret in secrets for name in ("masking", "sealing", "stream")]
    return [
        *(secret.to_bytes() for secret in secrets),
        *derived,
        *masking,
        *(derive(key, "agreement") for key in masking),
        *agreed,
    ]


def pairs_of(client: int) -> dict[int, bytes]:
    keys = [client_secret(KNOWN, index).key("masking") for index in range(CLIENTS)]
    public = {index: advertise(key, RUN, index) for index, key in enumerate(keys) if index != client}
    return agree(keys[client], RUN, client, public)


def test_hosts_receive_no_secrets_of_others() -> None:
    """The test checks inputs, memory and calls of each host in a run with key, noise and masks."""
    settings = FedTSNE(landmarks=5, rounds=2, early_iterations=5, iterations=5)
    plan = Plan(
        method="fed-tsne",
        settings=settings,
        scale="standard",
        seed=0,
        run=RUN,
        coverage=Coverage(NOISE),
        isometry_key=True,
        secure=SecureSums(),
    )
    transport = apart()
    serve(transport, CLIENTS, plan, journal=Journal())
    for own, host in enumerate(transport.hosts):
        content = pickle.dumps(host) + b"".join(transport.reported[own])
        assert not [key for key in keys_of_others(own) if key in content or key.hex().encode() in content]
        assert client_secret(KNOWN, own).to_bytes() in content, "a search that finds what is there"
        assert set(pairs_of(own).values()) <= {key for key in pairs_of(own).values() if key in content}
    passed = b"".join(transport.received + [call for calls in transport.reported.values() for call in calls])
    assert GROUP.to_bytes() not in passed, "nor does the server pass on what it could read"
    assert not [key for client in range(CLIENTS) for key in pairs_of(client).values() if key in passed]


def test_host_refuses_messages_for_other_clients() -> None:
    hosted = [HostedClient(client, rows, fingerprint(rows)) for client, rows in enumerate(PARTS)]
    with pytest.raises(TypeError, match=r"host of clients \[0\] was given the secrets of clients \[0, 1\]"):
        ClientHost(hosted=hosted[:1], seed=0, host_secrets=known(hosted[:2]))
    with pytest.raises(TypeError, match=r"host of clients \[0, 1\] was given the secrets of clients \[0\]"):
        ClientHost(hosted=hosted[:2], seed=0, host_secrets=known(hosted[:1]))
    classes = {1: np.zeros(21, np.int64)}
    with pytest.raises(TypeError, match="was given"):
        ClientHost(hosted=hosted[:1], seed=0, host_secrets=replace(known(hosted[:1]), classes=classes))


def test_sealed_parts_are_cut_for_each_host() -> None:
    classes, reserve = [np.full(3, client) for client in range(3)], np.ones((2, 2))
    every = HostSecrets.derived(KNOWN, range(3), reserve, classes)
    part = every.at((2, 0))
    assert part.secrets == {client: client_secret(KNOWN, client) for client in (2, 0)}
    assert part.classes.keys() == {0, 2}
    assert part.classes[2] is classes[2]
    assert part.reserve is reserve
    assert KNOWN not in secrets_in(every, set())


# ------------------------------------------------------------------------------------- agreement


def agreed_at(transport: InlineTransport) -> list[Secret]:
    return [client.shared for host in transport.hosts for client in host._clients.values()]


def test_clients_agree_on_a_drawn_secret_and_recover_it() -> None:
    transport = apart()
    federation = keyed(transport)
    with pytest.raises(RunError, match="have not agreed on one yet"):
        agreed_at(transport)
    federation.agree()
    assert agreed_at(transport) == [GROUP] * CLIENTS
    for host in transport.hosts:
        host.restore(history_at(transport.history, host.clients))
    assert agreed_at(transport) == [GROUP] * CLIENTS
    sent = {
        entry.kind: (entry.count, entry.bytes)
        for entry in federation.ledger.entries.values()
        if "Enrol" not in entry.kind
    }
    assert sum(count for count, _ in sent.values()) == 4 * CLIENTS, "as docs/secure-aggregation.md has it"
    assert sum(size for _, size in sent.values()) <= 390 * CLIENTS, "as docs/secure-aggregation.md has it"
    keys, boxes = (np.zeros((CLIENTS - 1, length), np.uint8) for length in (32, 48))
    others = CLIENTS - 1
    assert sent["PublicKey"] == (CLIENTS, CLIENTS * len(encode(PublicKey(keys[0]))))
    assert sent["HandOutRequest"] == (1, len(encode(HandOutRequest(keys))))
    assert sent["SealedSecret"] == (1, len(encode(SealedSecret(boxes))))
    assert sent["Agreed"] == (others, others * len(encode(Agreed())))
    assert sent["OpenRequests"] == (others, others * len(encode(OpenRequest(0, keys[0], boxes[0]))))


def test_single_client_agrees_with_itself() -> None:
    transport = apart(PARTS[:1])
    Federation(transport, 1, Context(seed=0, run=RUN)).agree()
    assert agreed_at(transport) == [GROUP]


def test_box_opens_only_for_its_receiver_run_and_sender() -> None:
    keys = [bytes([client]) * 32 for client in range(4)]
    public = {client: advertise(keys[client], RUN, client) for client in range(4)}
    content = bytes(range(32))
    box, other = hand_out(content, keys[0], RUN, 0, {1: public[1], 2: public[2]})
    assert content not in box.tobytes()
    assert receive(box, keys[1], RUN, 1, 0, public[0]) == content
    changed = box.copy()
    changed[-1] ^= 1
    wrong: list[tuple[Any, ...]] = [
        (changed, keys[1], RUN, 1, 0, public[0]),
        (other, keys[1], RUN, 1, 0, public[0]),
        (box, keys[1], "another run", 1, 0, public[0]),
        (box, keys[1], RUN, 1, 3, public[0]),
        (box, keys[1], RUN, 1, 0, public[3]),
        (box, keys[2], RUN, 1, 0, public[0]),
    ]
    for arguments in wrong:
        with pytest.raises(MaskingError, match="is forged, or belongs to another client"):
            receive(*arguments)
    back = hand_out(content, keys[1], RUN, 1, {0: public[0]})[0]
    with pytest.raises(MaskingError, match="is forged"):
        receive(back, keys[1], RUN, 1, 0, public[0])


def test_swapped_boxes_are_refused() -> None:
    def swapped(call: Call) -> Call:
        if not isinstance(call.request, OpenRequests):
            return call
        own = dict(call.request.own)
        own[1], own[2] = own[2], own[1]
        return replace(call, request=OpenRequests(own))

    with pytest.raises(ClientError, match="is forged, or belongs to another client or run"):
        keyed(apart(relayed=swapped)).agree()
    assert OpenRequest.sets_state, "a restarted client receives it again"


def test_forged_keys_are_refused() -> None:
    """With a forged or repeated key, a founder would seal the secret for the wrong client."""
    keys = [bytes([client]) * 32 for client in range(3)]
    public = [advertise(key, RUN, client) for client, key in enumerate(keys)]
    for others in ({1: public[0]}, {1: public[2], 2: public[2]}):
        with pytest.raises(MaskingError, match="have the same public key"):
            hand_out(bytes(32), keys[0], RUN, 0, others)
    with pytest.raises(MaskingError, match="small order"):
        hand_out(bytes(32), keys[0], RUN, 0, {1: np.zeros(32, np.uint8)})
    with pytest.raises(MaskingError, match="31 bytes instead of 32"):
        advertise(bytes(31), RUN, 0)


# ------------------------------------------------------------------------------------- sealed scaling


def test_sealed_scaling_is_bound_to_its_run() -> None:
    sealed = key_rows(keyed(apart()), "standard", 0)
    opened(sealed, GROUP, RUN, "euclidean")
    with pytest.raises(RunError, match="belongs to another client, round or run"):
        opened(sealed, GROUP, "another run", "euclidean")


@pytest.mark.parametrize("liar", range(CLIENTS))
def test_client_with_another_scaling_is_detected(liar: int) -> None:
    def answered(answer: Answer) -> Answer:
        if isinstance(answer, Answered) and isinstance(answer.reply, Keyed) and answer.client == liar:
            scaling = answer.reply.scaling.copy()
            scaling[-1] ^= 1
            return replace(answer, reply=Keyed(scaling))
        return answer

    with pytest.raises(RaydrError, match="clients scaled by different sums, or have different secrets"):
        key_rows(keyed(apart(answered=answered)), "standard", 0)


def test_clients_with_different_secrets_are_detected() -> None:
    """A founder that distributes one secret and uses another gives a different sealed scaling."""
    transport = apart()
    federation = keyed(transport)

    def replaced(answer: Answer) -> Answer:
        if isinstance(answer, Answered) and isinstance(answer.reply, SealedSecret):
            transport.hosts[0]._clients[0].agreed = Secret(bytes(32))
        return answer

    transport.answered = replaced
    with pytest.raises(RaydrError):
        key_rows(federation, "standard", 0)
