"""A site's own ledger of a run as a file that the site's node has signed. It has no rows, so it may be handed out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from raydr.deployment.ledger import charges_as_list, read_charges
from raydr.deployment.site_host import Finished
from raydr.documents import MEGABYTE, read_limited
from raydr.errors import DataError
from raydr.files import write_whole
from raydr.privacy.ledger import Ledger, read_entries
from raydr.privacy.node_keys import is_signed, sign

LEDGERS = "ledgers"
"""Folder with a signed ledger of each run, in the site's own folder."""
_PURPOSE = "ledger of a site, version 1"


@dataclass(frozen=True, kw_only=True)
class SignedLedger:
    """A site's account of a run, whose signature was checked.

    Attributes
    ----------
    site : str
        Name of the site.
    sites : tuple of str
        Names of all sites in the run.
    run : str
        Name of the run.
    ledger : Ledger
        Every message that the site received and sent, and what they cost.
    """

    site: str
    sites: tuple[str, ...]
    run: str
    ledger: Ledger


def write_signed_ledger(ended: Finished) -> Path | None:
    """Write the ledger of a site's run, signed with the key of its node; None if the site has named no key.

    Raises
    ------
    OutputError
        If the site's folder cannot be written.
    DataError
        If the key cannot be read.
    """
    key, ledger = ended.site.node_key, ended.ledger.content
    if key is None:
        return None
    content = json.dumps(
        {
            "site": ended.site.name,
            "sites": ended.start.agreement.sites,
            "run": ended.start.run,
            "entries": ledger.as_list(),
            "charges": charges_as_list(ledger.charges),
        }
    )
    signature = sign(key, _PURPOSE, content.encode()).hex()
    now = datetime.now().astimezone()
    path = Path(ended.site.folder) / LEDGERS / f"{now:%Y%m%d-%H%M%S}-{ended.start.run[:8]}.json"
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    text = json.dumps({"content": content, "signature": signature}, indent=2) + "\n"
    return write_whole(path, text.encode(), "make the site's folder writable")


def read_signed_ledger(path: Path, nodes: Mapping[str, bytes]) -> SignedLedger:
    """Return a site's ledger, after a check of its signature.

    Parameters
    ----------
    path : Path
        The file that the site has written.
    nodes : mapping of name to bytes
        Public keys of the sites' nodes, in PEM.

    Raises
    ------
    DataError
        If the file cannot be read, or the node of the site that it names has not signed it.
    """
    try:
        signed = json.loads(read_limited(path, 64 * MEGABYTE))
        content, signature = str(signed["content"]), bytes.fromhex(signed["signature"])
        found = json.loads(content)
        ledger = SignedLedger(
            site=str(found["site"]),
            sites=tuple(map(str, found["sites"])),
            run=str(found["run"]),
            ledger=Ledger(charges=read_charges(found["charges"])),
        )
        for entry in read_entries(found["entries"]):
            ledger.ledger.record(entry)
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise DataError(f"{path} cannot be read as the signed ledger of a site ({error}).") from error
    node = nodes.get(ledger.site)
    if node is None:
        raise DataError(f"{path} is the ledger of {ledger.site!r}, of whose node there is no public key.")
    if not is_signed(node, _PURPOSE, content.encode(), signature):
        raise DataError(
            f"{path} is not signed by the node of {ledger.site!r}: it was changed, or the site has another key."
        )
    return ledger
