"""Requests, replies, and what each of them reveals.

A request goes from the server to every client; a reply comes back. Both are frozen dataclasses of arrays and
scalars, nothing else: what they hold is what travels, and the ledger counts it. A reply type declares its
granularity when it is defined, and the shape and range of every field (:meth:`Reply.ranges`), by which what comes
back is checked before anything is done with it.

>>> import numpy as np
>>> from dataclasses import dataclass
>>> @dataclass(frozen=True)
... class Total(Reply, granularity=Granularity.AGGREGATE, what="the sum of all entries"):
...     total: float
...     @staticmethod
...     def ranges(request, rows):
...         return {"total": Range((), 1e3)}
>>> @dataclass(frozen=True)
... class TotalRequest(Request[Total], what="a question without content"):
...     pass
>>> @answers(TotalRequest)
... def total(client, request):
...     return Total(float(client.rows.sum()))
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeAlias, TypeVar, get_args

import numpy as np
from numpy.typing import NDArray

from raydr.arrays import BoolArray, Float64Array
from raydr.errors import RunError
from raydr.privacy.ledger import Fixed, Granularity, Public, Tells
from raydr.privacy.mechanism import Bound, Mechanism, Quantity
from raydr.settings import Settings

if TYPE_CHECKING:
    from raydr.federation.client import Client

BLOCK = 32_768
"""Numbers of an array that are worked on at a time: with two buffers as long, 768 KB, they stay in a core's cache."""

LARGE = 100_000
"""Numbers of an array from which on loops over it are worth compiling, which takes loading numba."""


def worth_compiling(array: NDArray[Any]) -> bool:
    """Whether an array is one that the loops of :mod:`raydr.federation.kernels` are for."""
    return array.size >= LARGE and array.dtype in (np.float32, np.float64)


class RefusedRequestError(RunError):
    """A client does not answer what it was asked."""


class RefusedReplyError(RunError):
    """A reply that is not what its type declares: wrong shape or type, not finite, or out of range."""


@dataclass(frozen=True)
class Range:
    """What a field of a reply must be.

    Attributes
    ----------
    shape : tuple of int
        Its shape; ``()`` for a number.
    largest : float or array of that shape
        Largest absolute value. Infinite where nothing is known; such a field cannot be summed.
    dtype : str
        Its numpy type.
    separate : bool
        Whether each entry of an array stands for itself, as a single number does: the length of all of them together
        means nothing.
    sealed : bool
        Whether only the client itself can read it. Such a field is an array, and stands beside sums and means of the
        others with a row for each client that answered, in client order.
    """

    shape: tuple[int, ...]
    largest: Bound = math.inf
    dtype: str = "float64"
    separate: bool = False
    sealed: bool = False

    def check(self, name: str, value: Any) -> None:
        """Raise RefusedReplyError unless ``value`` is as declared; every number must be finite."""
        array = np.asarray(value)
        if array.shape != self.shape:
            raise RefusedReplyError(f"{name} has shape {array.shape} instead of {self.shape}")
        if array.dtype != self._type if array is value else array.dtype.kind not in "biuf":
            raise RefusedReplyError(f"{name} holds {array.dtype} instead of {self.dtype}")
        if not self._holds(array):
            outside = ~self._inside(array)
            worst = float(array[outside].ravel()[0])
            raise RefusedReplyError(
                f"{name} holds {worst:g} ({int(outside.sum())} of {array.size} entries), outside the declared"
                f" range of +-{float(np.max(self.largest)):g}"
            )

    @cached_property
    def _type(self) -> np.dtype[Any]:
        return np.dtype(self.dtype)

    @cached_property
    def _limit(self) -> Bound:
        """Largest absolute value, below infinity."""
        limit = np.minimum(self.largest, np.finfo(np.float64).max)
        # A double of numpy's: a plain float would be cast to a float32 array's type, and the largest overflows there.
        return limit if limit.ndim else np.float64(limit)

    def _holds(self, array: NDArray[Any]) -> bool:
        """Whether every number is within its bound."""
        if not isinstance(self._limit, float):
            return bool(self._inside(array).all())
        flat = array.reshape(-1)
        if worth_compiling(flat):
            from raydr.federation.kernels import all_within

            return all_within(flat, self._limit)
        # No entry is larger than the length of all; that holds for most, and is one call.
        if flat.dtype == np.float64 and flat.size <= BLOCK:
            with np.errstate(over="ignore"):
                length = math.sqrt(flat.dot(flat))
            if length <= 0.99 * self._limit:
                return True
        # Two reductions of each block while it is in the cache, and no array of flags.
        for start in range(0, flat.size, BLOCK):
            block = flat[start : start + BLOCK]
            largest, least = np.maximum.reduce(block), np.minimum.reduce(block)
            if not (largest <= self._limit and least >= -self._limit):
                return False
        return True

    def _inside(self, array: NDArray[Any]) -> BoolArray:
        """Which numbers are within their bound; NaN never is."""
        return np.asarray((array <= self._limit) & (array >= np.negative(self._limit)))


class Reply(ABC):
    """Base of everything that leaves a client.

    Parameters
    ----------
    granularity : Granularity
        Whether the reply speaks of single records, of one client, or is meant to be summed over clients.
    what : str
        One sentence for the ledger: what the reply contains, in words that a data owner understands.
    public : Public or None
        Why it costs no privacy. Left out, the accountant charges it.
    covers : sequence of str
        Fields of finite range that a mechanism may change, and so widen.
    stays : bool
        Whether its client keeps it, so that nothing leaves: the ledger has it as simulation-only, since only here can
        the evaluation look at it.
    tells : Tells or None
        What a reply for each record says of it: by this, not by words, the report says what the server knows.
    """

    granularity: ClassVar[Granularity]
    what: ClassVar[str]
    public: ClassVar[Public | None]
    covers: ClassVar[tuple[str, ...]]
    stays: ClassVar[bool]
    tells: ClassVar[Tells | None]

    def __init_subclass__(
        cls,
        *,
        granularity: Granularity,
        what: str,
        public: Public | None = None,
        covers: tuple[str, ...] = (),
        stays: bool = False,
        tells: Tells | None = None,
    ) -> None:
        super().__init_subclass__()
        cls.granularity = granularity
        cls.what = what
        cls.public = public
        cls.covers = covers
        cls.stays = stays
        cls.tells = tells

    @staticmethod
    @abstractmethod
    def ranges(request: Any, rows: int) -> Mapping[str, Range]:
        """Shape and range of each field.

        Parameters
        ----------
        request : Request
            What is answered.
        rows : int
            Rows of the client that answers. The range of a reply that is summed must not depend on it: it has to
            be the same for all clients, and known to the server.

        Returns
        -------
        ranges : mapping of field name to Range
            Of every field.
        """

    def fixed(self, request: Any) -> Fixed | None:
        """What it fixes of the client's records for whoever asked, by linear equations; None where that is not known.

        Parameters
        ----------
        request : Request
            What the client was told.

        Returns
        -------
        fixed : Fixed or None
            As if nothing blurred the reply: what a mechanism did to it is the ledger's to say.
        """
        return None

    def quantities(self, on: str, request: Any) -> Mapping[str, Quantity]:
        """What the reply holds of ``on``, such as "distances", each with its unit: what a mechanism may change.

        Raises
        ------
        TypeError
            If it holds nothing of that sort: nothing would protect it, whatever the ledger said.
        """
        raise TypeError(f"{type(self).__name__} has no {on} that a mechanism could change")

    def covered(self, values: Mapping[str, Float64Array], mechanism: Mechanism) -> Self:
        """Return the same with other values of its quantities, which the mechanism has changed."""
        return replace(self, **values)  # type: ignore[type-var]


R = TypeVar("R", bound=Reply)
Q = TypeVar("Q", bound="Request[Any]")


class Request(Generic[R]):
    """Base of everything that the server sends; ``R`` is the type of its replies.

    Parameters
    ----------
    what : str
        One sentence for the ledger: what the clients are told.
    sets_state : bool
        Whether the client part changes the client. A client that had to be restarted repeats such requests in order,
        and no client follows one twice, however often it is asked.
    padded : bool
        Whether clients add pads to their summands that they alone can take off again
        (:meth:`raydr.federation.Federation.padded_sum`).

    Attributes
    ----------
    mechanism : Mechanism or None
        What a client's host is to apply: a field of requests that offer it, None for all others.
    deviation : float
        Root mean square deviation of the features, in units of which a mechanism on data changes them. NaN for
        requests that do not say: what a client part makes of such rows is refused.
    """

    what: ClassVar[str]
    sets_state: ClassVar[bool]
    padded: ClassVar[bool]
    reply: ClassVar[type[Reply]]
    client_part: ClassVar[Callable[[Client, Any], Reply]]
    joint_part: ClassVar[Callable[[Sequence[Client], Sequence[Any]], Sequence[Reply]] | None] = None
    mechanism: Mechanism | None = None
    deviation: float = math.nan

    def __init_subclass__(cls, *, what: str, sets_state: bool = False, padded: bool = False) -> None:
        super().__init_subclass__()
        cls.what = what
        cls.sets_state = sets_state
        cls.padded = padded
        (cls.reply,) = get_args(vars(cls)["__orig_bases__"][0])  # R of Request[R]

    def sensitivity(self, rows: int) -> float:
        """Bound, in L2, how far zeroing out one record moves what a mechanism covers of a client's reply.

        Parameters
        ----------
        rows : int
            Of the client, at least 1: public, and the same with the record or without it.

        Returns
        -------
        sensitivity : float
            Infinite where nothing bounds it, so that noise can claim nothing.
        """
        return math.inf

    def replace_sensitivity(self, rows: int) -> float:
        """Bound the same for another record in its place: at most once out and once in."""
        return 2.0 * self.sensitivity(rows)

    def claimed_sensitivity(self, rows: int) -> float:
        """Return the bound that holds under the relation of this request's mechanism."""
        replaces = self.mechanism is not None and self.mechanism.relation == "replace-one"
        return self.replace_sensitivity(rows) if replaces else self.sensitivity(rows)

    @property
    def reads_classes(self) -> bool:
        """Whether the reply is made of the records' classes too, which a host shows to no client part otherwise."""
        return False

    def covering(self, records: Mechanism | None) -> Mechanism | None:
        """Return what covers the reply of clients whose records carry ``records`` for good.

        Noise on data covers what is made of noisy rows, and nothing else that a client holds.
        """
        found = records if self.mechanism is None else self.mechanism
        return None if found is not None and found.on == "data" and self.reads_classes else found

    @property
    def jointly(self) -> bool:
        """Whether a host that has a joint part for this type answers for all its clients at once."""
        return False

    def addressed_to(self, client: int) -> Self:
        """Return what this client is told; a request that holds a part for each client gives out the one alone.

        The server cuts the parts: a host receives those of the clients that are asked there and no other. Replies are
        then checked against what they declare for the part. In a sum, all parts must declare the same.
        """
        return self


def declared_ranges(kind: type[Reply], request: Request[Any], rows: int) -> Mapping[str, Range]:
    """Range of every field of what leaves a client with so many rows: wider where a mechanism adds to it.

    Raises
    ------
    TypeError
        If the type does not declare exactly its fields.
    """
    ranges = dict(kind.ranges(request, rows))
    names = {field.name for field in fields(kind)}  # type: ignore[arg-type]
    if names != set(ranges):
        raise TypeError(f"{kind.__name__} declares ranges of {sorted(ranges)} but has {sorted(names)}")
    mechanism = request.mechanism
    if mechanism is not None and mechanism.on != "data":
        for name in kind.covers:
            declared = ranges[name]
            if np.all(np.isfinite(declared.largest)):
                largest = mechanism.reach(declared.largest, request.claimed_sensitivity(1))
                ranges[name] = replace(declared, largest=largest)
    return ranges


def answers(request: type[Q]) -> Callable[[Callable[[Client, Q], R]], Callable[[Client, Q], R]]:
    """Make a function the client part of a request type: it runs where the client's rows are."""

    def register(part: Callable[[Client, Q], R]) -> Callable[[Client, Q], R]:
        request.client_part = staticmethod(part)
        return part

    return register


JointPart: TypeAlias = "Callable[[Sequence[Client], Sequence[Q]], Sequence[R]]"


def answers_jointly(request: type[Q]) -> Callable[[JointPart[Q, R]], JointPart[Q, R]]:
    """Make a function the joint part of a request type: one reply for each of several clients of one host.

    It must give what the client part gives for each, but for the rounding of sums that it takes in another order. The
    host calls it where :attr:`Request.jointly` says so, with what each of the clients is told. If it raises, so must
    the client part of one of them: else nobody there has answered, since other bits would come without a word.

    Raises
    ------
    TypeError
        If the request sets state: a client that follows it must be able to follow it alone.
    """
    if request.sets_state:
        raise TypeError(f"{request.__name__} sets clients' state, so each client answers it by itself")

    def register(part: JointPart[Q, R]) -> JointPart[Q, R]:
        request.joint_part = staticmethod(part)
        return part

    return register


def payload_bytes(message: Any) -> int:
    """Bytes of a message's arrays, text and numbers (8 each), however deep they lie, without any envelope.

    Raises
    ------
    TypeError
        If it holds anything else: what cannot be counted must not travel.

    Examples
    --------
    >>> payload_bytes((np.zeros((2, 3)), "four", 5, None, {"six": 7.0}))
    71
    """
    match message:
        case np.ndarray():
            return message.nbytes
        case str():
            return len(message.encode())
        case bytes():
            return len(message)
        case None:
            return 0
        case bool() | int() | float() | np.generic():
            return 8
        case tuple() | list():
            return sum(map(payload_bytes, message))
        case Mapping():
            return sum(payload_bytes(key) + payload_bytes(value) for key, value in message.items())
    if isinstance(message, Settings):
        return sum(payload_bytes(value) for _, value in message)
    if is_dataclass(message) and not isinstance(message, type):
        return sum(payload_bytes(getattr(message, field.name)) for field in fields(message))
    raise TypeError(
        f"a message holds a {type(message).__name__}: arrays, numbers, text, settings, and tuples, mappings and"
        " dataclasses of them alone may travel"
    )
