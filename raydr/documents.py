"""Readers for documents from untrusted sources: limited in size, and parsed without running anything.

A run folder or a scenario can come from another person. A kilobyte of YAML can use all memory (aliases of aliases) or
take very long (nested lists, base-60 numbers). A file can be a pipe that never ends. Scenarios need only keys and
values, a few levels deep.
"""

from __future__ import annotations

import errno
import stat
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

DEEPEST = 30
"""Maximum levels of lists and sections. A scenario has six."""
LONGEST_NUMBER = 400
"""Maximum length of a value that is not text. The longest double without an exponent has 309 characters."""
MEGABYTE = 2**20


class DocumentError(ValueError):
    """An error in a document. The message is the end of a sentence."""


def require_limited(path: Path, most: int) -> Path:
    """Return the path of a file of at most ``most`` bytes.

    Raises
    ------
    OSError
        If the file does not exist or is larger, or if the path is a folder, a pipe or a device.
    """
    described = path.stat()
    if stat.S_ISDIR(described.st_mode):
        raise IsADirectoryError(errno.EISDIR, "Is a directory", str(path))
    if not stat.S_ISREG(described.st_mode):
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    if described.st_size > most:
        raise OSError(errno.EFBIG, f"it is larger than {most // MEGABYTE} MiB", str(path))
    return path


def read_limited(path: Path, most: int) -> bytes:
    """Return the content of a file of at most ``most`` bytes.

    Raises as :func:`require_limited`, or if it cannot be read.
    """
    return require_limited(path, most).read_bytes()


def parse_yaml(text: str) -> Any:
    """Return the values of a YAML document.

    Raises
    ------
    DocumentError
        If it is not YAML, has a key twice, uses an alias, nests too deeply, or holds values that no scenario
        needs.

    Examples
    --------
    >>> parse_yaml("on: [1, yes]")
    {'on': [1, True]}
    """
    try:
        return yaml.load(text, _Plain)
    except yaml.MarkedYAMLError as error:
        at = f", line {error.problem_mark.line + 1}" if error.problem_mark is not None else ""
        raise DocumentError(f"{error.problem}{at}") from None
    except (
        yaml.YAMLError,
        ValueError,
        OverflowError,
    ) as error:  # also invalid dates, such as 2001-02-30
        raise DocumentError(str(error).splitlines()[0]) from None


class _Plain(yaml.SafeLoader):
    """A safe loader of plain values: no aliases, no repeated keys (YAML drops the first), no deep nesting."""

    depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """Compose a node, but refuse anything that makes a small document large."""
        event: Any = self.peek_event()  # type: ignore[no-untyped-call]
        if isinstance(event, yaml.AliasEvent):
            self._refuse(f"*{event.anchor} is an alias. Write out its value", event.start_mark)
        self.depth += 1
        if self.depth > DEEPEST:
            self._refuse(f"lists and sections are nested more than {DEEPEST} levels deep", event.start_mark)
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node

    def compose_scalar_node(self, anchor: Any) -> yaml.ScalarNode:
        """Compose a scalar, but refuse numbers that take long to read and invalid characters."""
        node = super().compose_scalar_node(anchor)
        if not node.tag.endswith(":str") and len(node.value) > LONGEST_NUMBER:
            self._refuse(
                f"a value that is not text has more than {LONGEST_NUMBER} characters", node.start_mark
            )
        if any("\ud800" <= letter <= "\udfff" for letter in node.value):
            self._refuse("a text holds half a surrogate pair, which is not a character", node.start_mark)
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Construct a mapping, but refuse repeated keys."""
        seen: set[Any] = set()
        for key_node, _ in node.value:
            if key_node.tag == "tag:yaml.org,2002:bool":  # a key is a name, so `on` is not a boolean here
                key_node.tag = "tag:yaml.org,2002:str"
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, Hashable):
                self._refuse("a list or a section cannot be a key", key_node.start_mark)
            if key in seen:
                self._refuse(f"the key {str(key)[:60]!r} appears twice", key_node.start_mark)
            seen.add(key)
        return super().construct_mapping(node, deep)

    def _refuse(self, reason: str, mark: Any) -> None:
        raise yaml.constructor.ConstructorError(None, None, reason, mark)


# In YAML 1.1, a single = has a type that Python does not have.
_Plain.add_constructor("tag:yaml.org,2002:value", lambda loader, node: str(node.value))
