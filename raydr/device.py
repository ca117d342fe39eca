"""Where large products are computed: by the processor's cores, or by a GPU that this process may use.

What either computes is written once, by what numpy and torch call by the same names and mean alike: arrays are put
there (:meth:`Place.put`), the functions come from :attr:`Place.functions`, and results are fetched. Torch is imported
where a GPU is asked for, and nowhere else.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from raydr.errors import ScenarioError

Device = Literal["auto", "cpu", "cuda"]
Found = Literal["cpu", "cuda"]


class Place:
    """Where arrays are, and what computes with them.

    Parameters
    ----------
    name : str
        ``numpy``, or what torch calls a device.

    Attributes
    ----------
    functions : module
        ``numpy`` or ``torch``.
    """

    def __init__(self, name: str = "numpy") -> None:
        self.name = name
        self.functions: Any = np
        if name != "numpy":
            import torch

            self.functions = torch
        self._kept: dict[int, tuple[weakref.ref[Any], Any]] = {}

    @property
    def accelerated(self) -> bool:
        """Whether that is torch's to compute, and not numpy's."""
        return self.functions is not np

    @property
    def torch_device(self) -> str:
        """What torch is to compute on there."""
        return self.name if self.accelerated else "cpu"

    def put(self, values: NDArray[Any]) -> Any:
        """These values there; numpy's own array where that is here."""
        if not self.accelerated:
            return values
        return self.functions.tensor(np.ascontiguousarray(values), device=self.name)

    def kept(self, values: NDArray[Any]) -> Any:
        """As :meth:`put`, once for as long as the array lives, of which nobody may write into any more."""
        if not self.accelerated:
            return values
        found = self._kept.get(id(values))
        if found is None or found[0]() is not values:
            number = id(values)
            # Its number is another array's once it is gone.
            gone = weakref.ref(values, lambda _: self._kept.pop(number, None))
            found = self._kept[number] = gone, self.put(values)
        return found[1]

    def fetch(self, values: Any) -> Any:
        """What was computed there, as numpy's array."""
        return values.cpu().numpy() if self.accelerated else values

    def floored(self, values: Any) -> Any:
        """Make what is below 0 in ``values`` 0, in place."""
        if self.accelerated:
            return values.clamp_(min=0.0)
        return np.maximum(values, 0.0, out=values)


_CPU = Place()
_asked: list[Place] = []
"""What blocks of this process that are under way compute on."""


def workplace() -> Place:
    """Where this process computes large products, in all its threads."""
    return _asked[-1] if _asked else _CPU


def found(device: Device) -> Found:
    """What a device comes to in this process: ``auto`` is a GPU where there is one.

    Raises
    ------
    ScenarioError
        If it is to be a GPU, and torch finds none.
    """
    if device == "cpu":
        return "cpu"
    import torch

    if torch.cuda.is_available():
        return "cuda"
    if device == "auto":
        return "cpu"
    raise ScenarioError(
        "runtime.device is cuda, and torch finds no GPU that it can use: set it to auto or cpu, or install a build of"
        " torch for the machine's GPU."
    )


def built_for_gpus() -> bool:
    """Whether torch, as installed, can use a GPU, be there one here or elsewhere."""
    import torch

    return torch.version.cuda is not None


@contextmanager
def computing_on(device: Device) -> Iterator[Place]:
    """Compute on a device inside a ``with`` block; errors are those of :func:`found`.

    Examples
    --------
    >>> with computing_on("cpu") as there:
    ...     there is workplace(), there.name
    (True, 'numpy')
    """
    there = _CPU if found(device) == "cpu" else Place("cuda")
    with computing_at(there):
        yield there


@contextmanager
def computing_at(there: Place) -> Iterator[None]:
    """Compute at a place inside a ``with`` block."""
    _asked.append(there)
    try:
        yield
    finally:
        _asked.remove(there)
