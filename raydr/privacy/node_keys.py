"""Long-lived keys of the sites' nodes: they prove who a node is, and sign what it sends to the other sites.

A site keeps the private key. The public keys of all sites are in a file that their owners exchange without the server.
The keys are those with which Flower's nodes authenticate. Signatures are ECDSA with SHA-512 (FIPS 186-5), and name
their purpose, so that a signature for one cannot serve another.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from raydr.documents import MEGABYTE, DocumentError, parse_yaml, read_limited
from raydr.errors import DataError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

_NUMBER = 66
"""Bytes of each of the two numbers of a signature on the largest curve, P-521."""
SIGNATURE = 2 * _NUMBER
"""Bytes of a signature."""


def sign(key: EllipticCurvePrivateKey, purpose: str, content: bytes) -> bytes:
    """Return the signature of content for a purpose, 132 bytes: always the same for the same key and content."""
    from cryptography.hazmat.primitives.asymmetric.ec import ECDSA
    from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
    from cryptography.hazmat.primitives.hashes import SHA512

    found = key.sign(_named(purpose, content), ECDSA(SHA512(), deterministic_signing=True))
    return b"".join(number.to_bytes(_NUMBER) for number in decode_dss_signature(found))


def is_signed(public: bytes, purpose: str, content: bytes, signature: bytes) -> bool:
    """Return whether the owner of a public key, in PEM, signed this content for this purpose."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ec import ECDSA, EllipticCurvePublicKey
    from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
    from cryptography.hazmat.primitives.hashes import SHA512
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    key = load_pem_public_key(public)
    if not isinstance(key, EllipticCurvePublicKey) or len(signature) != SIGNATURE:
        return False
    numbers = (int.from_bytes(signature[:_NUMBER]), int.from_bytes(signature[_NUMBER:]))
    try:
        key.verify(encode_dss_signature(*numbers), _named(purpose, content), ECDSA(SHA512()))
    except InvalidSignature:
        return False
    return True


def _named(purpose: str, content: bytes) -> bytes:
    return f"raydr: {purpose}\n".encode() + content


def read_private_key(path: Path) -> EllipticCurvePrivateKey:
    """Return the private key of a node from a file, as ``ssh-keygen`` writes it.

    Raises
    ------
    DataError
        If the file cannot be read, or its key is not on an elliptic curve or has a passphrase.
    """
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.hazmat.primitives.serialization import load_ssh_private_key

    try:
        found = load_ssh_private_key(read_limited(path, MEGABYTE), None)
    except (OSError, ValueError, TypeError, UnsupportedAlgorithm, DocumentError) as error:
        raise DataError(f"The private key {path} cannot be read ({error}). {_MAKE_ONE}") from error
    if not isinstance(found, EllipticCurvePrivateKey):
        raise DataError(f"The private key {path} is not on an elliptic curve. {_MAKE_ONE}")
    return found


def public_pem(key: EllipticCurvePrivateKey) -> bytes:
    """Return the public key of a private key, in PEM."""
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    return key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


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


_MAKE_ONE = "Make one with `ssh-keygen -t ecdsa -b 384 -N '' -f node.key`."
