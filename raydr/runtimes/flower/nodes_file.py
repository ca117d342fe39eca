"""The file that binds the names of a run's sites to the public keys of their nodes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from raydr.documents import MEGABYTE, DocumentError, parse_yaml, read_limited
from raydr.errors import DataError


def read_nodes(path: Path) -> dict[str, bytes]:
    """Return the public key of each site's node.

    Parameters
    ----------
    path : Path
        A YAML mapping of each site's name to its public key on an elliptic curve, as OpenSSH writes it: the content of
        the file with which the node is registered at the SuperLink.

    Returns
    -------
    keys : dict of name to bytes
        Public keys in PEM, as Flower's nodes present them.

    Raises
    ------
    DataError
        If the file cannot be read, a key is none, or two sites have the same key.
    """
    try:
        content = parse_yaml(read_limited(path, MEGABYTE).decode("utf-8"))
    except (OSError, UnicodeDecodeError, DocumentError) as error:
        raise DataError(
            f"{path} cannot be read ({error}): expected a mapping of sites to public keys."
        ) from error
    if not isinstance(content, Mapping) or not content:
        raise DataError(f"{path} names no site: expected a mapping of sites to public keys.")
    keys = {str(site): _pem(str(site), key, path) for site, key in content.items()}
    owner = {key: site for site, key in keys.items()}
    for site, key in keys.items():
        if owner[key] != site:
            raise DataError(
                f"{path}: {site!r} and {owner[key]!r} have the same public key. Each node has its own."
            )
    return keys


def _pem(site: str, key: object, path: Path) -> bytes:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_ssh_public_key

    try:
        found = load_ssh_public_key(str(key).encode())
    except (ValueError, UnsupportedAlgorithm) as error:
        raise DataError(f"{path}: the key of {site!r} cannot be read ({error}).") from error
    if not isinstance(found, EllipticCurvePublicKey):
        raise DataError(
            f"{path}: the key of {site!r} is not on an elliptic curve, which Flower's nodes need: make one with"
            " `ssh-keygen -t ecdsa -b 384 -N '' -f node.key`."
        )
    return found.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
