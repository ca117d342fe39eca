"""Files of users and documents shipped with raydr: find them by path or name, read and parse them."""

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
    "pass rows in memory to an estimator, such as raydr.FedUMAP().fit(X, sites=...), and a table in a file to"
    " raydr.map"
)
_NUMBER = re.compile("([0-9]+)")
LARGEST = 4 * MEGABYTE
"""Maximum size of a document in bytes: a scenario with forty thousand sites."""


@dataclass(frozen=True)
class DocumentStore:
    """All documents of one sort.

    Attributes
    ----------
    folder : Traversable
        Folder of shipped documents, ``NAME.yaml``.
    noun : str
        Name of the sort, such as "scenario".
    command : str
        Command that runs a document.
    stored : str
        File name of the document in the folder of its run.
    keys : str
        Some of its keys, for error messages.
    """

    folder: Traversable
    noun: str
    command: str
    stored: str
    keys: str

    def names(self) -> dict[str, str]:
        """Return the shipped names in natural order, each with the comment on its first line."""
        files = sorted(
            (entry for entry in self.folder.iterdir() if entry.name.endswith(".yaml")),
            key=lambda entry: [int(part) if part.isdigit() else part for part in _NUMBER.split(entry.name)],
        )
        return {
            entry.name.removesuffix(".yaml"): entry.read_text(encoding="utf-8").splitlines()[0].lstrip("# ")
            for entry in files
        }

    def parse(self, document: str | Path) -> dict[str, Any]:
        """Return the content of a file or of a shipped document.

        Raises
        ------
        ScenarioError
            If it does not exist or is not a mapping.
        """
        if not isinstance(document, str | PathLike):
            raise ScenarioError(
                f"expected a {self.noun} (a YAML file, the name of a shipped one, or a mapping of keys), got"
                f" {kind_of_object(document)}: {FOR_ROWS}."
            )
        if ending(Path(document)) in ENDINGS:
            raise ScenarioError(
                f"{document} is a table, not a {self.noun}: run `raydr map {document}`, or name it in data.path of a"
                " scenario."
            )
        text = self._text(document)
        try:
            content = parse_yaml(text)
        except DocumentError as error:
            raise ScenarioError(f"{document} is not valid YAML: {error}.") from None
        if not isinstance(content, dict):
            raise ScenarioError(
                f"{document} contains {_form(content)}, not a {self.noun}: it must have keys such as {self.keys}."
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
            files = [entry.name for entry in path.parent.glob("*.y*ml")] if path.parent.is_dir() else []
            if path.suffix in (".yaml", ".yml") or len(path.parts) > 1:
                near = did_you_mean(path.name, files)
                place = path.parent.absolute()
                raise ScenarioError(
                    f"There is no file {path.name!r} in {place}{near}: correct the path, or give a name from"
                    f" `raydr list {self.noun}s`, without .yaml."
                    if path.parent.is_dir()
                    else f"There is no folder {place}: correct the path."
                ) from None
            raise ScenarioError(
                f"There is no {self.noun} {str(document)!r}{did_you_mean(path.name, [*names, *files])}: give a YAML"
                f" file, or a shipped {self.noun}: {', '.join(names)}."
            ) from None
        except IsADirectoryError:
            raise ScenarioError(self._of_folder(path)) from None
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
            raise ScenarioError(
                f"Cannot read the {self.noun} {document} ({reason}): give a YAML file, or a shipped {self.noun}:"
                f" {', '.join(names)}."
            ) from None

    def _of_folder(self, path: Path) -> str:
        """Return an error for a folder: which command to run instead."""
        what = self.command.removeprefix("raydr ")
        if not (path / self.stored).is_file():
            return f"{path} is not the folder of a {what}: give a YAML file, or the name of a {self.noun}."
        if is_incomplete(path):
            again = f"`{self.command} {quote(str(path))} --resume`"
            return f"{path} is the folder of an interrupted {what}: to resume it, run {again}."
        return (
            f"{path} is the folder of a complete {what}:"
            f" to repeat it, run `{self.command} {quote(str(path / self.stored))}`."
        )


def kind_of_object(given: Any) -> str:
    """Return the type of an object, with its shape if it has one."""
    shape = getattr(given, "shape", None)
    return type(given).__name__ + (f" of shape {tuple(shape)}" if isinstance(shape, tuple) else "")


def _form(content: Any) -> str:
    return "nothing" if content is None else "a list" if isinstance(content, list) else "a single value"
