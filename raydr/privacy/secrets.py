"""Clients' secrets, from which all keys, masks and noise of a run follow. The server does not have them.

Each client has its own secret, and its host receives only that one. A secret that all clients share is drawn by one
client, which sends it to the others (:mod:`raydr.federation.agreement`).

In a simulation, one person runs all clients, and all clients' secrets follow from a root that no host receives. The
root follows from two things: 32 bytes, and the run's inputs (its ``study``). The 32 bytes come from a file, or are
drawn from the system's random source and kept for this user outside every run folder. A run repeated with the same
file is the same release, unless it may lose clients. A repetition may lose different clients, so such a run has its
own root. :mod:`raydr.federation.noise_streams` names the noise within a run.

A stream of a secret is ChaCha20 (RFC 8439): a part of it reveals nothing about the rest. numpy's own generators do not
have this property.
"""

from __future__ import annotations

import hmac
import json
import os
import secrets
import shlex
import stat
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import numpy as np

from raydr.errors import DataError, OutputError, RunError

SIZE = 32
"""Bytes of a secret."""
_LARGEST_FILE = 2**20


@dataclass(frozen=True)
class Secret:
    """Secret bytes, and the streams, keys and secrets derived from them.

    Examples
    --------
    >>> root = Secret(bytes(32))
    >>> root
    Secret()
    >>> root.derived("client", 3).stream("noise").random() == root.derived("client", 4).stream("noise").random()
    False
    """

    _bytes: bytes = field(repr=False)

    @classmethod
    def drawn(cls) -> Secret:
        """Return a new secret from the system's random source."""
        return cls(secrets.token_bytes(SIZE))

    def to_bytes(self) -> bytes:
        """Return the 32 bytes, only to seal them for another client."""
        return self._bytes

    def derived(self, *names: str | int) -> Secret:
        """Return another secret, which reveals nothing about this one or about other names (HKDF, RFC 5869)."""
        return Secret(self.key(*names))

    def key(self, *names: str | int) -> bytes:
        """Return 32 bytes for the one use that the names state."""
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.kdf.hkdf import HKDF

        info = json.dumps(["raydr", *names]).encode()
        return HKDF(SHA256(), SIZE, salt=None, info=info).derive(self._bytes)

    def stream(self, *names: str | int) -> np.random.Generator:
        """Return a random stream for these names, unpredictable without the secret; same names, same numbers."""
        from randomgen import ChaCha

        return np.random.Generator(
            ChaCha(key=int.from_bytes(self.key("stream", *names), "little"), rounds=20)
        )

    @property
    def commitment(self) -> str:
        """A public identifier of the secret, which does not reveal it."""
        return self.key("commitment")[:8].hex()


def client_secret(root: Secret, client: int) -> Secret:
    """Return a client's own secret, which reveals nothing about the root or another client's secret."""
    return root.derived("client", client)


def group_secret(founder: Secret) -> Secret:
    """Return the secret of all clients, derived from the own secret of the client that distributes it."""
    return founder.derived("all clients")


FOUNDER = 0
"""The client that distributes the secret of all clients of a run."""


@dataclass(frozen=True)
class Origin:
    """The source of a run's root: this user's own secret, or a file.

    Attributes
    ----------
    file : str or None
        The file; None for the secret that is kept for this user.
    is_optional : bool
        Whether no secret hides anything in the run. If no secret can be kept for this user, such a run uses one that
        ends with this process. It can then be neither resumed nor audited.
    """

    file: str | None = None
    is_optional: bool = False

    def begin(self, study: str, *, repeatable: bool = True) -> RootedRun:
        """Return a new run.

        With the user's own secret, no two runs have the same root. With a file, repeatable runs of the same study do.

        Raises
        ------
        DataError, OutputError
            If the secret cannot be read or kept.
        """
        repeats = repeatable and self.file is not None
        return self._rooted(study, "file" if repeats else secrets.token_hex(8))

    def again(self, study: str, name: str) -> RootedRun:
        """Return the run with this name again, to resume or audit it.

        Raises
        ------
        RunError
            If the run belongs to another study, or its secret is not available. Another secret would send earlier
            releases again under different noise.
        """
        rooted, nonce = self.named(name), name.split("-")[1]
        if rooted != self._rooted(study, nonce):
            raise RunError(
                f"The run {name} started with other settings or rows, so its clients' secret does not fit. Restore"
                " its scenario and data, or start the run again."
            )
        return rooted

    def named(self, name: str) -> RootedRun:
        """Return the run with this name, whatever its inputs.

        Raises
        ------
        RunError
            If its secret is not available.
        """
        rooted = self._of_mark(*name.split("-")[:2]) if name.count("-") == 2 else None
        if rooted is None or rooted.name != name:
            raise self.missing()
        return rooted

    def missing(self) -> RunError:
        """Return the error for a run whose secret is not the one found here."""
        place = (
            f"the file {self.file} (privacy.secret) has changed"
            if self.file is not None
            else f"the secret that the run started with is not the one in {_kept_at()}, which is kept for each user"
            " on each machine"
        )
        return RunError(
            f"The clients' secret of this run is not available: {place}. Restore it, or start the run again."
        )

    def fingerprint(self, content: str) -> str:
        """Return a digest of the content that only the owner of the secret can compute."""
        return self._source.key("fingerprint", content)[:16].hex()

    @property
    def _source(self) -> Secret:
        if self.file is not None:
            return _of_file(Path(self.file))
        try:
            return _kept()
        except OutputError:
            if not self.is_optional:
                raise
            return _of_this_process()

    def _rooted(self, study: str, nonce: str) -> RootedRun:
        # The name is public. An unkeyed digest of the rows would reveal the last row to an attacker who knows the
        # others.
        return self._of_mark(self._source.key("study", study, nonce)[:16].hex(), nonce)

    def _of_mark(self, mark: str, nonce: str) -> RootedRun:
        root = self._source.derived("run", mark, nonce)
        return RootedRun(root, f"{mark}-{nonce}-{root.commitment}")


@dataclass(frozen=True)
class RootedRun:
    """A run's root, for the process that runs the simulation, and the run's public name.

    Attributes
    ----------
    root : Secret
        Secret from which all its clients' secrets follow.
    name : str
        A keyed digest of the run's inputs, a nonce that distinguishes runs with the same inputs, and the root's
        commitment.
    """

    root: Secret
    name: str

    @property
    def shared(self) -> Secret:
        """The secret that all clients of the run share, once they have agreed on it."""
        return group_secret(client_secret(self.root, FOUNDER))


def _of_file(path: Path) -> Secret:
    quoted = shlex.quote(str(path))
    remedy = f"to create one, run `(umask 077; head -c {SIZE} /dev/urandom > {quoted})`"
    try:
        with path.open("rb") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            content = file.read(_LARGEST_FILE + 1)
    except OSError as error:
        raise DataError(
            f"privacy.secret: cannot read {path} ({error.strerror}). Expected a file with at least {SIZE} secret"
            f" bytes: {remedy}."
        ) from error
    if mode & 0o077:
        raise DataError(
            f"privacy.secret: users other than the owner can read or change {path} (mode {mode:04o}). Run `chmod"
            f" 600 {quoted}`. If someone else may have read it, create a new secret."
        )
    if not SIZE <= len(content) <= _LARGEST_FILE:
        raise DataError(
            f"privacy.secret: {path} has {len(content):,} bytes; expected at least {SIZE} and at most"
            f" {_LARGEST_FILE:,}: {remedy}."
        )
    return Secret(hmac.digest(b"raydr secret file", content, "sha256"))


@cache
def _of_this_process() -> Secret:
    return Secret.drawn()


def _kept_at() -> Path:
    from platformdirs import user_state_path

    return user_state_path("raydr", appauthor=False) / "secret"


def _kept() -> Secret:
    """Return the secret that is kept for this user; draw it on first use."""
    return kept_secret(_kept_at(), "Set XDG_STATE_HOME to a writable folder, or privacy.secret to a file")


def kept_secret(path: Path, remedy: str = "Make its folder writable") -> Secret:
    """Return the secret in a file that only its owner can read; draw it on first use.

    Raises
    ------
    OutputError
        If the file cannot be used; ``remedy`` says what to do.
    """
    try:
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            fresh = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
            with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(secrets.token_bytes(SIZE))
                file.flush()
                os.fsync(file.fileno())
            try:
                os.link(fresh, path)  # if two processes draw at once, both use the first
            except FileExistsError:
                pass
            finally:
                fresh.unlink()
        content = path.read_bytes()
    except OSError as error:
        raise OutputError(
            f"Cannot use {path}, which holds the clients' secret ({error.strerror or error}). {remedy}."
        ) from error
    if len(content) != SIZE:
        raise OutputError(
            f"{path}, which holds the clients' secret, is damaged: it has {len(content)} bytes instead of {SIZE}."
            " Remove it, and raydr creates a new one. Runs that started with the old one cannot be resumed."
        )
    return Secret(content)
