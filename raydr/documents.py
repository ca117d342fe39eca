"""Documents that anybody may have written: read up to a size, and parsed without doing as they say.

A run folder or a scenario may come from somewhere else. YAML can ask for more memory in a kilobyte than any machine has
(aliases of aliases), and for more time than anybody (nested lists, numbers to the base of sixty); a file can be a pipe
that never ends. What scenarios need is plain: keys and values, a few levels deep.
"""

from __future__ import annotations

import errno
import stat
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

DEEPEST = 30
"""Levels of lists and sections; a scenario has six."""
LONGEST_NUMBER = 400
"""Signs of what is no text; the longest double without an exponent has 309."""
MEGABYTE = 2**20


class DocumentError(ValueError):
    """What is wrong with a document, as the end of a sentence."""


def require_limited(path: Path, most: int) -> Path:
    """Return the path of a file of at most so many bytes.

    Raises
    ------
    OSError
        If there is none, it is larger, or it is a folder, a pipe or a device.
    """
    described = path.stat()
    if stat.S_ISDIR(described.st_mode):
        raise IsADirectoryError(errno.EISDIR, "Is a directory", str(path))
    if not stat.S_ISREG(described.st_mode):
        raise OSError(errno.EINVAL, "it is no regular file", str(path))
    if described.st_size > most:
        raise OSError(errno.EFBIG, f"it is larger than {most // MEGABYTE} MiB", str(path))
    return path


def read_limited(path: Path, most: int) -> bytes:
    """Content of a file of at most so many bytes; raises as :func:`require_limited`, or if it cannot be read."""
    return require_limited(path, most).read_bytes()


def parse_yaml(text: str) -> Any:
    """Values of a YAML document.

    Raises
    ------
    DocumentError
        If it is not YAML, gives a key twice, uses an alias, nests too deeply, or holds what no scenario needs.

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
    ) as error:  # also dates that are none, such as 2001-02-30
        raise DocumentError(str(error).splitlines()[0]) from None


class _Plain(yaml.SafeLoader):
    """A safe loader of plain values: no aliases, no key twice (YAML's reader would drop the first), no depths."""

    depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """Refuse what makes a small document large."""
        event: Any = self.peek_event()  # type: ignore[no-untyped-call]
        if isinstance(event, yaml.AliasEvent):
            self._refuse(f"*{event.anchor} is an alias: write out what it stands for", event.start_mark)
        self.depth += 1
        if self.depth > DEEPEST:
            self._refuse(f"lists and sections are nested more than {DEEPEST} deep", event.start_mark)
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node

    def compose_scalar_node(self, anchor: Any) -> yaml.ScalarNode:
        """Refuse numbers that take long to read, and letters that are none."""
        node = super().compose_scalar_node(anchor)
        if not node.tag.endswith(":str") and len(node.value) > LONGEST_NUMBER:
            self._refuse(f"what is no text has more than {LONGEST_NUMBER} signs", node.start_mark)
        if any("\ud800" <= letter <= "\udfff" for letter in node.value):
            self._refuse("a text holds half a surrogate pair, which is no letter", node.start_mark)
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Refuse repeats, then construct."""
        seen: set[Any] = set()
        for key_node, _ in node.value:
            if key_node.tag == "tag:yaml.org,2002:bool":  # a key is a name: `on` is no truth value here
                key_node.tag = "tag:yaml.org,2002:str"
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, Hashable):
                self._refuse("a list or a section cannot be a key", key_node.start_mark)
            if key in seen:
                self._refuse(f"the key {str(key)[:60]!r} stands there twice", key_node.start_mark)
            seen.add(key)
        return super().construct_mapping(node, deep)

    def _refuse(self, reason: str, mark: Any) -> None:
        raise yaml.constructor.ConstructorError(None, None, reason, mark)


# To YAML 1.1 a lone = is a value of no type that Python has.
_Plain.add_constructor("tag:yaml.org,2002:value", lambda loader, node: str(node.value))
