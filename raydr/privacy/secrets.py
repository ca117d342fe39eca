"""Secrets of clients, which the server lacks, and from which all keys, masks and noise of a run follow.

Each client has a secret of its own, and its host is given that and no other's. What all clients share, one of them
draws and hands to the others (:mod:`raydr.federation.agreement`).

Here, where one person runs a simulation, all clients' secrets follow from a root, which no host is given. It follows
from 32 bytes that are drawn from the system's own source and kept for this user, outside of every run folder, or that a
file holds; and from what the run is (its ``study``). A run repeated with the same file is the same release, unless it
may lose clients: it may lose others the next time, so it has a root of its own. What noise is named by within a run:
:mod:`raydr.federation.noise_streams`.

A stream of a secret is ChaCha20 (RFC 8439): whoever has seen any part of it can tell nothing of the rest, which is not
so of numpy's own generators.
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
    """Bytes that are shown to nobody, and what follows from them.

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
        """A new one, from the system's own source."""
        return cls(secrets.token_bytes(SIZE))

    def to_bytes(self) -> bytes:
        """Return the 32 bytes, to be sealed for another client and for nothing else."""
        return self._bytes

    def derived(self, *names: str | int) -> Secret:
        """Another secret, which tells nothing of this one nor of any of other names (HKDF, RFC 5869)."""
        return Secret(self.key(*names))

    def key(self, *names: str | int) -> bytes:
        """Return 32 bytes that are for one use, which the names tell."""
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.kdf.hkdf import HKDF

        info = json.dumps(["raydr", *names]).encode()
        return HKDF(SHA256(), SIZE, salt=None, info=info).derive(self._bytes)

    def stream(self, *names: str | int) -> np.random.Generator:
        """Random numbers that nobody without the secret can tell from others; the same for the same names."""
        from randomgen import ChaCha

        return np.random.Generator(
            ChaCha(key=int.from_bytes(self.key("stream", *names), "little"), rounds=20)
        )

    @property
    def commitment(self) -> str:
        """A name by which the secret can be known again, and from which it does not follow."""
        return self.key("commitment")[:8].hex()


def client_secret(root: Secret, client: int) -> Secret:
    """Return a client's own secret, which tells nothing of the root nor of another client's."""
    return root.derived("client", client)


def group_secret(founder: Secret) -> Secret:
    """Return what all clients are to share, drawn from the own secret of the client that hands it out."""
    return founder.derived("all clients")


FOUNDER = 0
"""The client that hands out the secret of all clients of a run."""


@dataclass(frozen=True)
class Origin:
    """Where a run's root comes from: this user's own secret, or a file.

    Attributes
    ----------
    file : str or None
        The file; None for the secret that is kept for this user.
    is_optional : bool
        Whether nothing of the run is hidden by a secret. Where none can be kept for this user, such a run takes one
        that ends with this process: it can be neither resumed nor audited afterwards.
    """

    file: str | None = None
    is_optional: bool = False

    def begin(self, study: str, *, repeatable: bool = True) -> RootedRun:
        """A new run: of the user's own secret, no two have the same root; nor of a file, unless they are repeatable.

        Raises
        ------
        DataError, OutputError
            If the secret cannot be read or kept.
        """
        repeats = repeatable and self.file is not None
        return self._rooted(study, "file" if repeats else secrets.token_hex(8))

    def again(self, study: str, name: str) -> RootedRun:
        """The run of that name once more: a resumed one, or one that is audited.

        Raises
        ------
        RunError
            If it was of another study, or its secret is not here: with another, what was noisy before would be sent
            again under other noise.
        """
        rooted, nonce = self.named(name), name.split("-")[1]
        if rooted != self._rooted(study, nonce):
            raise RunError(
                f"The run {name} began with other settings or other rows than these, so its clients' secret is not for"
                " them: bring its scenario and its data back as they were, or start the run anew."
            )
        return rooted

    def named(self, name: str) -> RootedRun:
        """The run of that name, whatever it was made from.

        Raises
        ------
        RunError
            If its secret is not here.
        """
        rooted = self._of_mark(*name.split("-")[:2]) if name.count("-") == 2 else None
        if rooted is None or rooted.name != name:
            raise self.missing()
        return rooted

    def missing(self) -> RunError:
        """Return the error that what this leads to is not the secret that a run began with."""
        place = (
            f"privacy.secret, {self.file}, is another file than it was"
            if self.file is not None
            else f"the secret that it began with is not the one in {_kept_at()}: it lies with the user, on the machine,"
            " where the run began"
        )
        return RunError(
            f"The clients' secret of that run is not here: {place}. Bring it, or start the run anew."
        )

    def fingerprint(self, content: str) -> str:
        """Return a digest that tells contents apart, and that only the owner of the secret can compute."""
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
        # Everybody sees the name: a digest of the rows that is not keyed would tell the last row to who knows the rest.
        return self._of_mark(self._source.key("study", study, nonce)[:16].hex(), nonce)

    def _of_mark(self, mark: str, nonce: str) -> RootedRun:
        root = self._source.derived("run", mark, nonce)
        return RootedRun(root, f"{mark}-{nonce}-{root.commitment}")


@dataclass(frozen=True)
class RootedRun:
    """A run's root, for the process that runs the simulation, and the run's name, which is public.

    Attributes
    ----------
    root : Secret
        From which every secret of its clients follows.
    name : str
        What the run is made from, for those alone who have the secret; what tells it from others of the same making;
        and the root's commitment.
    """

    root: Secret
    name: str

    @property
    def shared(self) -> Secret:
        """The secret that all clients of the run share, once they have agreed on it."""
        return group_secret(client_secret(self.root, FOUNDER))


def _of_file(path: Path) -> Secret:
    quoted = shlex.quote(str(path))
    remedy = f"`(umask 077; head -c {SIZE} /dev/urandom > {quoted})` makes one"
    try:
        with path.open("rb") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            content = file.read(_LARGEST_FILE + 1)
    except OSError as error:
        raise DataError(
            f"privacy.secret: {path} cannot be read ({error.strerror}). It is a file with at least {SIZE} secret bytes:"
            f" {remedy}."
        ) from error
    if mode & 0o077:
        raise DataError(
            f"privacy.secret: others than its owner can read or change {path} (mode {mode:04o}): type `chmod 600"
            f" {quoted}`. If others may have read it, make a new secret."
        )
    if not SIZE <= len(content) <= _LARGEST_FILE:
        raise DataError(
            f"privacy.secret: {path} has {len(content):,} bytes, and a secret has at least {SIZE} and at most"
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
    """The secret that is kept for this user; drawn when it is first asked for."""
    path = _kept_at()
    try:
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            fresh = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
            with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(secrets.token_bytes(SIZE))
                file.flush()
                os.fsync(file.fileno())
            try:
                os.link(fresh, path)  # of two processes that draw at once, the first is believed by both
            except FileExistsError:
                pass
            finally:
                fresh.unlink()
        content = path.read_bytes()
    except OSError as error:
        raise OutputError(
            f"{path}, where the clients' secret is kept, cannot be used ({error.strerror or error}): set XDG_STATE_HOME"
            " to a folder that can be written, or privacy.secret to a file."
        ) from error
    if len(content) != SIZE:
        raise OutputError(
            f"{path}, where the clients' secret is kept, is damaged: it has {len(content)} bytes instead of {SIZE}."
            " Remove it, and another is drawn; what was begun with it cannot be resumed."
        )
    return Secret(content)
