"""Requests and replies, and what each of them reveals.

A request goes from the server to every client; a reply comes back. Both are frozen dataclasses of arrays and scalars
only: their content is what travels, and the ledger counts it. A reply type declares its granularity, and the shape and
range of every field (:meth:`Reply.ranges`). Replies are checked against these before they are used.

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
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeAlias, TypeVar, get_args

import numpy as np
from numpy.typing import NDArray

from raydr.arrays import BoolArray, Float64Array
from raydr.errors import RunError
from raydr.privacy.ledger import DeterminedRecords, Granularity, Public, RecordContent
from raydr.privacy.mechanism import Bound, Mechanism, Quantity
from raydr.wire_types import travels

if TYPE_CHECKING:
    from raydr.federation.client import Client

BLOCK = 32_768
"""Numbers processed at a time: with two buffers of this length, 768 KB, they stay in a core's cache."""

LARGE = 100_000
"""Array size from which compiled loops pay off, although numba must be loaded."""


def worth_compiling(array: NDArray[Any]) -> bool:
    """Return whether to use the compiled loops of :mod:`raydr.federation.kernels` for an array."""
    return array.size >= LARGE and array.dtype in (np.float32, np.float64)


class RefusedRequestError(RunError):
    """A client refuses to answer a request."""


class RefusedReplyError(RunError):
    """A reply that does not match its declaration: wrong shape or type, not finite, or out of range."""


@dataclass(frozen=True)
class Range:
    """The declaration of a reply's field.

    Attributes
    ----------
    shape : tuple of int
        Its shape; ``()`` for a number.
    largest : float or array of that shape
        Largest absolute value; infinite if unknown. A field with an infinite range cannot be summed.
    dtype : str
        Its numpy type.
    separate : bool
        Whether the entries of an array are independent numbers, so that their common norm has no meaning.
    sealed : bool
        Whether only the client itself can read it. Such a field is an array. Sums and means keep one row for each
        client that answered, in client order.
    bits : {64, 32, 16}
        Bits of an integer in a sum's ring (:mod:`raydr.federation.ring`). With fewer than 64, messages are smaller,
        and clients round at random, so that the sum is unbiased.
    """

    shape: tuple[int, ...]
    largest: Bound = math.inf
    dtype: str = "float64"
    separate: bool = False
    sealed: bool = False
    bits: int = 64

    def check(self, name: str, value: Any) -> None:
        """Raise RefusedReplyError unless ``value`` matches the declaration; every number must be finite."""
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
        # A numpy double: a plain float would be cast to the type of a float32 array, where the largest double
        # overflows.
        return limit if limit.ndim else np.float64(limit)

    @cached_property
    def _short(self) -> float:
        """Length, below all limits by more than rounding, that no array with an entry beyond its limit has.

        It is -1 for limits below 1e-150: squares of such entries can vanish.
        """
        least = float(np.min(self._limit, initial=math.inf))
        return 0.99 * least if least > 1e-150 else -1.0

    def _holds(self, array: NDArray[Any]) -> bool:
        """Return whether every number is within its bound."""
        # No entry exceeds the norm of all entries. This quick test passes for most arrays. vdot, unlike dot, does not
        # warn of an overflow, and a context that silences the warning takes longer than the product.
        if (
            array.size <= BLOCK
            and array.dtype == np.float64
            and math.sqrt(np.vdot(array, array)) <= self._short
        ):
            return True
        if not isinstance(self._limit, float):
            return bool(self._inside(array).all())
        flat = array.reshape(-1)
        if worth_compiling(flat):
            from raydr.federation.kernels import all_within

            return all_within(flat, self._limit)
        # Two reductions of each block while it is in the cache, without an array of flags.
        for start in range(0, flat.size, BLOCK):
            block = flat[start : start + BLOCK]
            largest, least = np.maximum.reduce(block), np.minimum.reduce(block)
            if not (largest <= self._limit and least >= -self._limit):
                return False
        return True

    def _inside(self, array: NDArray[Any]) -> BoolArray:
        """Return which numbers are within their bound; NaN never is."""
        return np.asarray((array <= self._limit) & (array >= np.negative(self._limit)))


@dataclass(frozen=True)
class Cells:
    """Numbers of records that a reply tells, for a site's policy.

    Attributes
    ----------
    counts : array
        Records in each cell. If ``of`` is given: records up to each bound, one row for each feature.
    of : (features,) array or None
        Records with a value of each feature. Then answers to several requests split the records into cells.
    """

    counts: NDArray[Any]
    of: NDArray[Any] | None = None


class Reply(ABC):
    """Base of everything that leaves a client.

    Parameters
    ----------
    granularity : Granularity
        Whether the reply describes single records or one client, or is meant to be summed over clients.
    what : str
        One sentence for the ledger: the content of the reply, in words that a data owner understands.
    public : Public or None
        Why it costs no privacy. If None, the accountant charges it.
    covers : sequence of str
        Fields with a finite range that a mechanism may change, and therefore widen.
    forwarded : bool
        Whether the server forwards it, sealed, to the other clients, and cannot read it.
    stays : bool
        Whether its client keeps it. The ledger lists it as simulation-only, because only a simulation lets the
        evaluation see it.
    tells : RecordContent or None
        What a per-record reply reveals about each record; the report uses this to state what the server knows.
    extreme : bool
        Whether it bounds the values of single records, such as a column's largest value.
    splits : bool
        Whether it divides single records between cells, so that cells have fractions of records.
    """

    granularity: ClassVar[Granularity]
    what: ClassVar[str]
    public: ClassVar[Public | None]
    covers: ClassVar[tuple[str, ...]]
    forwarded: ClassVar[bool]
    stays: ClassVar[bool]
    tells: ClassVar[RecordContent | None]
    extreme: ClassVar[bool]
    splits: ClassVar[bool]

    def __init_subclass__(
        cls,
        *,
        granularity: Granularity,
        what: str,
        public: Public | None = None,
        covers: tuple[str, ...] = (),
        forwarded: bool = False,
        stays: bool = False,
        tells: RecordContent | None = None,
        extreme: bool = False,
        splits: bool = False,
    ) -> None:
        super().__init_subclass__()
        travels(cls)
        cls.granularity = granularity
        cls.what = what
        cls.public = public
        cls.covers = covers
        cls.forwarded = forwarded
        cls.stays = stays
        cls.tells = tells
        cls.extreme = extreme
        cls.splits = splits

    @staticmethod
    @abstractmethod
    def ranges(request: Any, rows: int) -> Mapping[str, Range]:
        """Return the shape and range of each field.

        Parameters
        ----------
        request : Request
            The request that is answered.
        rows : int
            Rows of the client that answers. The range of a summed reply must not depend on it: all clients need the
            same range, and the server must know it.

        Returns
        -------
        ranges : mapping of field name to Range
            One for every field.
        """

    def fixed(self, request: Any) -> DeterminedRecords | None:
        """Return how far the reply determines the client's records by linear equations; None if unknown.

        Parameters
        ----------
        request : Request
            The client's request.

        Returns
        -------
        fixed : DeterminedRecords or None
            The value for a reply without noise; the ledger states the mechanism.
        """
        return None

    def cells(self, request: Any, client: Client) -> Iterable[Cells]:
        """Return the numbers of records that the reply without noise tells, for a site's policy.

        Parameters
        ----------
        request : Request
            The client's request.
        client : Client
            The client that answers.
        """
        return ()

    def merged(self, request: Any, least: int) -> Self:
        """Return the reply with neighbouring cells merged, so that each has ``least`` records; unchanged by default."""
        return self

    def quantities(self, on: str, request: Any) -> Mapping[str, Quantity]:
        """Return the reply's quantities of ``on``, such as "distances", with units: what a mechanism may change.

        Raises
        ------
        TypeError
            If it has none, so that nothing would protect it.
        """
        raise TypeError(f"{type(self).__name__} has no {on} that a mechanism could change")

    def covered(self, values: Mapping[str, Float64Array], mechanism: Mechanism) -> Self:
        """Return the reply with the quantities that the mechanism has changed."""
        return replace(self, **values)  # type: ignore[type-var]


R = TypeVar("R", bound=Reply)
Q = TypeVar("Q", bound="Request[Any]")


class Request(Generic[R]):
    """Base of everything that the server sends; ``R`` is the type of its replies.

    Parameters
    ----------
    what : str
        One sentence for the ledger: the content of the request.
    sets_state : bool
        Whether the client part changes the client. A restarted client repeats such requests in order. No client
        applies one twice, however often it is asked.
    padded : bool
        Whether clients add pads to their summands that only clients can remove
        (:meth:`raydr.federation.Federation.padded_sum`).
    blinded : bool
        Whether the server is to learn only which entries of the sum are 0, if sums are secure. Entries of summands are
        0 or more. Clients then add random numbers to the others (:func:`raydr.federation.pads.blind`).

    Attributes
    ----------
    mechanism : Mechanism or None
        Mechanism for the client's host: a field of requests that offer it, None for all others.
    deviation : float
        Root mean square deviation of the features, the unit of a level of noise on data. NaN for requests that do not
        set it: replies computed from such rows are refused.
    """

    what: ClassVar[str]
    sets_state: ClassVar[bool]
    padded: ClassVar[bool]
    blinded: ClassVar[bool]
    reply: ClassVar[type[Reply]]
    client_part: ClassVar[Callable[[Client, Any], Reply]]
    joint_part: ClassVar[Callable[[Sequence[Client], Sequence[Any]], Sequence[Reply]] | None] = None
    mechanism: Mechanism | None = None
    deviation: float = math.nan

    def __init_subclass__(
        cls, *, what: str, sets_state: bool = False, padded: bool = False, blinded: bool = False
    ) -> None:
        super().__init_subclass__()
        travels(cls)
        cls.what = what
        cls.sets_state = sets_state
        cls.padded = padded
        cls.blinded = blinded
        (cls.reply,) = get_args(vars(cls)["__orig_bases__"][0])  # R of Request[R]

    def sensitivity(self, rows: int) -> float:
        """Return an L2 bound on the change of a reply's covered part when one record is zeroed out.

        Parameters
        ----------
        rows : int
            Rows of the client, at least 1. The count is public, and the same with and without the record.

        Returns
        -------
        sensitivity : float
            Infinite without a bound, so that noise cannot have a claim.
        """
        return math.inf

    def replace_sensitivity(self, rows: int) -> float:
        """Return the bound for replacing one record: at most one removal and one addition."""
        return 2.0 * self.sensitivity(rows)

    def claimed_sensitivity(self, rows: int) -> float:
        """Return the bound that holds under the relation of this request's mechanism."""
        replaces = self.mechanism is not None and self.mechanism.relation == "replace-one"
        return self.replace_sensitivity(rows) if replaces else self.sensitivity(rows)

    @property
    def reads_classes(self) -> bool:
        """Whether the reply depends on the records' labels, which a host otherwise hides from client parts."""
        return False

    def covering(self, records: Mechanism | None) -> Mechanism | None:
        """Return what covers the reply of clients whose records carry ``records`` from the start.

        Noise on data covers only results computed from the noisy rows.
        """
        found = records if self.mechanism is None else self.mechanism
        return None if found is not None and found.on == "data" and self.reads_classes else found

    @property
    def jointly(self) -> bool:
        """Whether a host with a joint part for this type answers for all its clients at once."""
        return False

    def addressed_to(self, client: int) -> Self:
        """Return the request for this client; a request with a part for each client returns only that part.

        The server cuts the parts: a host receives only the parts of its own clients. Replies are then checked against
        the declaration for the part. In a sum, all parts must declare the same.
        """
        return self


def declared_ranges(kind: type[Reply], request: Request[Any], rows: int) -> Mapping[str, Range]:
    """Return the range of every field that leaves a client with ``rows`` rows, widened for a mechanism.

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
    """Return a decorator that makes a function the client part of a request type; it runs at the client."""

    def register(part: Callable[[Client, Q], R]) -> Callable[[Client, Q], R]:
        request.client_part = staticmethod(part)
        return part

    return register


JointPart: TypeAlias = "Callable[[Sequence[Client], Sequence[Q]], Sequence[R]]"


def answers_jointly(request: type[Q]) -> Callable[[JointPart[Q, R]], JointPart[Q, R]]:
    """Return a decorator for the joint part of a request type: one reply for each client of one host.

    It must return what the client part returns for each client, apart from the rounding of reordered sums. The host
    calls it if :attr:`Request.jointly` is true, with the request of each client. If it raises, the client part of at
    least one client must raise too. Otherwise no client of that host has answered, because separate answers would
    differ in their last bits without notice.

    Raises
    ------
    TypeError
        If the request sets state: each client must be able to apply it alone.
    """
    if request.sets_state:
        raise TypeError(f"{request.__name__} sets clients' state, so each client answers it by itself")

    def register(part: JointPart[Q, R]) -> JointPart[Q, R]:
        request.joint_part = staticmethod(part)
        return part

    return register
