"""Documents of a user's, and those that come with raydr under a name: found, read up to a size, and parsed."""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib.resources.abc import Traversable
from os import PathLike
from pathlib import Path
from shlex import quote
from typing import Any

from raydr.data.loading import ENDINGS, ending
from raydr.documents import MEGABYTE, DocumentError, parse_yaml, read_limited
from raydr.errors import ScenarioError, did_you_mean
from raydr.runfolder.records import is_incomplete

FOR_ROWS = (
    "rows in memory are what estimators take, such as raydr.FedUMAP().fit(X, sites=...), and tables in files are what"
    " raydr.map takes"
)
_NUMBER = re.compile("([0-9]+)")
LARGEST = 4 * MEGABYTE
"""Of a document: a scenario of forty thousand sites."""


@dataclass(frozen=True)
class Shelf:
    """Where documents of one sort lie.

    Attributes
    ----------
    folder : Traversable
        Of those that come with raydr, as ``NAME.yaml``.
    noun : str
        What one is called.
    command : str
        What runs one.
    stored : str
        Name of the file by which what was run keeps its document in its folder.
    keys : str
        Some of the keys of one, for whoever wrote something else.
    """

    folder: Traversable
    noun: str
    command: str
    stored: str
    keys: str

    def names(self) -> dict[str, str]:
        """Names of those that come with raydr, numbers in them by size, each with the comment on its first line."""
        files = sorted(
            (entry for entry in self.folder.iterdir() if entry.name.endswith(".yaml")),
            key=lambda entry: [int(part) if part.isdigit() else part for part in _NUMBER.split(entry.name)],
        )
        return {
            entry.name.removesuffix(".yaml"): entry.read_text(encoding="utf-8").splitlines()[0].lstrip("# ")
            for entry in files
        }

    def parse(self, document: str | Path) -> dict[str, Any]:
        """Keys and values of a file, or of what lies here under a name.

        Raises
        ------
        ScenarioError
            If there is none, or it is no mapping.
        """
        if not isinstance(document, str | PathLike):
            raise ScenarioError(
                f"A {self.noun} is a YAML file, the name of one that comes with raydr, or a mapping of keys, and what"
                f" was given is {kind_of_object(document)}: {FOR_ROWS}."
            )
        if ending(Path(document)) in ENDINGS:
            raise ScenarioError(
                f"{document} is a table and no {self.noun}: `raydr map {document}` maps it, or a scenario that names it"
                " in data.path."
            )
        text = self._text(document)
        try:
            content = parse_yaml(text)
        except DocumentError as error:
            raise ScenarioError(f"{document} is not valid YAML: {error}.") from None
        if not isinstance(content, dict):
            raise ScenarioError(
                f"{document} holds {_form(content)}, not a {self.noun}: it must give keys such as {self.keys}."
            )
        return content

    def _text(self, document: str | Path) -> str:
        path = Path(document).expanduser()
        names = list(self.names())
        if str(document) in names and not path.is_file():
            return (self.folder / f"{document}.yaml").read_text(encoding="utf-8")
        try:
            return read_limited(path, LARGEST).decode("utf-8")
        except FileNotFoundError:
            beside = [entry.name for entry in path.parent.glob("*.y*ml")] if path.parent.is_dir() else []
            if path.suffix in (".yaml", ".yml") or len(path.parts) > 1:
                near = did_you_mean(path.name, beside)
                place = path.parent.absolute()
                raise ScenarioError(
                    f"There is no file {path.name!r} in {place}{near}: `raydr list {self.noun}s` has the {self.noun}s"
                    " that come with raydr, and are run by their names alone."
                    if path.parent.is_dir()
                    else f"There is no folder {place}, so no {self.noun} in it: correct the path."
                ) from None
            raise ScenarioError(
                f"There is no {self.noun} {str(document)!r}{did_you_mean(path.name, [*names, *beside])}: give a YAML"
                f" file, or one of the {self.noun}s that come with raydr, {', '.join(names)}."
            ) from None
        except IsADirectoryError:
            raise ScenarioError(self._of_folder(path)) from None
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not text in UTF-8"
            raise ScenarioError(
                f"The {self.noun} {document} cannot be read ({reason}): give a YAML file, or one of the {self.noun}s"
                f" that come with raydr, {', '.join(names)}."
            ) from None

    def _of_folder(self, path: Path) -> str:
        """What to run instead of a folder."""
        what = self.command.removeprefix("raydr ")
        if not (path / self.stored).is_file():
            return f"{path} is a folder, and none that a {what} wrote: give a YAML file, or the name of a {self.noun}."
        if is_incomplete(path):
            again = f"`{self.command} {quote(str(path))} --resume`"
            return f"{path} is the folder of an interrupted {what}: {again} goes on with it."
        return (
            f"{path} is the folder of a {what} that is whole:"
            f" `{self.command} {quote(str(path / self.stored))}` repeats that {what}."
        )


def kind_of_object(given: Any) -> str:
    """An object by its type, and by its shape where it has one."""
    shape = getattr(given, "shape", None)
    return type(given).__name__ + (f" of shape {tuple(shape)}" if isinstance(shape, tuple) else "")


def _form(content: Any) -> str:
    return "nothing" if content is None else "a list" if isinstance(content, list) else "a single value"
