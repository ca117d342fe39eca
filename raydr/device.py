"""Devices for large products: the CPU, or a GPU that this process can use.

The same code runs on both. It uses only functions that numpy and torch share by name and meaning. Arrays go
to the device with :meth:`Place.put`, functions come from :attr:`Place.functions`, and results come back with
:meth:`Place.fetch`. torch is imported only if a GPU is requested.
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


class ArrayDevice:
    """A device that holds arrays and computes with them.

    Parameters
    ----------
    name : str
        ``numpy``, or the name of a torch device.

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
        """Whether torch computes here, instead of numpy."""
        return self.functions is not np

    @property
    def torch_device(self) -> str:
        """The torch device to compute on."""
        return self.name if self.accelerated else "cpu"

    def put(self, values: NDArray[Any]) -> Any:
        """Return the values on this device. On the CPU, this is the same numpy array."""
        if not self.accelerated:
            return values
        return self.functions.tensor(np.ascontiguousarray(values), device=self.name)

    def kept(self, values: NDArray[Any]) -> Any:
        """Return the values on this device, copied once for the lifetime of the array.

        Do not write to the array afterwards.
        """
        if not self.accelerated:
            return values
        found = self._kept.get(id(values))
        if found is None or found[0]() is not values:
            number = id(values)
            # When the array is gone, another array can get the same id.
            gone = weakref.ref(values, lambda _: self._kept.pop(number, None))
            found = self._kept[number] = gone, self.put(values)
        return found[1]

    def fetch(self, values: Any) -> Any:
        """Return a result of this device as a numpy array."""
        return values.cpu().numpy() if self.accelerated else values

    def floored(self, values: Any) -> Any:
        """Replace values below 0 with 0, in place."""
        if self.accelerated:
            return values.clamp_(min=0.0)
        return np.maximum(values, 0.0, out=values)


_CPU = ArrayDevice()
_asked: list[ArrayDevice] = []
"""The places of the open ``with`` blocks of this process."""


def workplace() -> ArrayDevice:
    """Return where this process computes large products, in all its threads."""
    return _asked[-1] if _asked else _CPU


def found(device: Device) -> Found:
    """Return the device that this process uses: ``auto`` is a GPU if there is one.

    Raises
    ------
    ScenarioError
        If a GPU is required but torch finds none.
    """
    if device == "cpu":
        return "cpu"
    import torch

    if torch.cuda.is_available():
        return "cuda"
    if device == "auto":
        return "cpu"
    raise ScenarioError(
        "runtime.device is cuda, but torch finds no GPU that it can use. Set runtime.device to auto or cpu, or install"
        " a build of torch for this machine's GPU."
    )


def built_for_gpus() -> bool:
    """Whether the installed torch is built for GPUs, even if this machine has none."""
    import torch

    return torch.version.cuda is not None


@contextmanager
def computing_on(device: Device) -> Iterator[ArrayDevice]:
    """Compute on a device inside a ``with`` block. Raises the errors of :func:`found`.

    Examples
    --------
    >>> with computing_on("cpu") as there:
    ...     there is workplace(), there.name
    (True, 'numpy')
    """
    there = _CPU if found(device) == "cpu" else ArrayDevice("cuda")
    with computing_at(there):
        yield there


@contextmanager
def computing_at(there: ArrayDevice) -> Iterator[None]:
    """Compute at a place inside a ``with`` block."""
    _asked.append(there)
    try:
        yield
    finally:
        _asked.remove(there)
