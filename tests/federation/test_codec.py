"""The wire format: equal values come out, and bytes from outside raise one type of error within the declared memory."""

from __future__ import annotations

import enum
import math
import random
import struct
import tracemalloc
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pytest
from encoded_transport import same
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from memory import peak_memory

from raydr.federation import Granularity, Range, Reply, Request
from raydr.federation.agreement import Agreed, OpenRequest, OpenRequests, PublicKey
from raydr.federation.codec import LIMIT, CodecError, decode, encode, encoded_bytes
from raydr.federation.enrolment import Enrol, Enrolment
from raydr.federation.failures import Failure, Kind
from raydr.federation.masks import Circle, Masks
from raydr.federation.secure import ShareRequest
from raydr.federation.wire import Answered, Call, PartialSum, Sent, Sharing, SumCall
from raydr.federation.wire_format import DEPTH, DTYPES, varint
from raydr.privacy import masking
from raydr.privacy.gaussian import GaussianNoise
from raydr.privacy.mechanism import Mechanism, silent
from raydr.scenarios.schema.data import DataSettings
from raydr.settings import Settings
from raydr.statistics.noisy_survey import PreparedCells
from raydr.wire_types import travels, wire_type

NOISE = GaussianNoise(on="distances", level=0.5)
KEY = np.arange(32, dtype=np.uint8)


class Colour(enum.Enum):
    RED = 1


@travels
class Shade(enum.Enum):
    DARK = "dark"


@travels
class Limits(Settings):
    low: float = 0.0
    high: float | None = None
    names: tuple[str, ...] = ()


@travels
@dataclass(frozen=True)
class Leaf:
    value: Any
    length: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        if isinstance(self.value, str):
            raise ValueError("a leaf holds no text")

    @cached_property
    def doubled(self) -> Any:
        return self.value * 2


@dataclass(frozen=True)
class Heard(Reply, granularity=Granularity.AGGREGATE, what="an echo"):
    value: Any

    @staticmethod
    def ranges(request: Any, rows: int) -> dict[str, Range]:
        return {"value": Range(())}


@dataclass(frozen=True)
class Said(Request[Heard], what="a word"):
    value: Any


@dataclass(frozen=True)
class NotRegistered:
    value: int


ENVELOPES = [
    Call(request=Enrol(((0.0, 1.0),)), number=3, round=0, attempt=1, clients=(0, 2), in_rounds=True),
    Call(
        request=OpenRequest(0, KEY, np.zeros(48, np.uint8)),
        number=4,
        round=2,
        attempt=0,
        clients=(1, 2),
        in_rounds=False,
        parts={client: OpenRequest(0, KEY, np.full(48, client, np.uint8)) for client in (1, 2)},
    ),
    SumCall(
        request=Said(NOISE),
        number=5,
        round=1,
        attempt=0,
        clients=tuple(range(5)),
        in_rounds=True,
        weighting="rows",
        total_weight=1 << 40,
        sharing=Sharing(3, 1.5, 1, "among"),
        masks=Masks(
            Circle(np.array([248], np.uint8), 0.1, 0.2, "digest"),
            masking.Label(masking.Batch("start", 1, 4), 2),
            np.array([248], np.uint8),
            np.zeros((5, 32), np.uint8),
        ),
    ),
    Answered(1, 4, 2, Heard(np.float32(0.5)), NOISE),
    Answered(2, 4, 2, Agreed()),
    Failure(3, Kind.POLICY, "no", "Traceback: ä"),
    PartialSum(number=5, round=1),
    PartialSum(
        number=5,
        round=1,
        reply=Heard,
        totals={"value": np.array(-3, np.int64), "row": np.arange(4)},
        sealed={"box": {2: KEY, 7: KEY[::2]}},
        clients=(2, 7),
        weight=11,
        sent=(Sent(None, 1, 40), Sent(NOISE, 1, 40)),
        failures=(Failure(3, Kind.TIMED_OUT, "late"),),
    ),
]

VALUES = [
    *ENVELOPES,
    OpenRequests({0: OpenRequest(1, KEY, KEY)}),
    PublicKey(KEY),
    Enrolment(10, 3),
    ShareRequest(Circle(KEY, 0.1, 0.2, ""), masking.Batch("s", 1, 1), KEY.reshape(1, 32), 4),
    PreparedCells(*[np.arange(3)] * 2, *[np.linspace(0, 1, 3)] * 5),
    *(1 << 63, (1 << 63) - 1, -(1 << 63), -(1 << 63) - 1, 1 << 4000, -(1 << 4000)),
    *(
        -0.0,
        math.inf,
        5e-324,
        *struct.unpack("<2d", struct.pack("<2Q", 0x7FF8000000000123, 0xFFF8000000000001)),
    ),
    *(dtype.type(1) for dtype in DTYPES),
    *(np.ones((2, 3), dtype) for dtype in DTYPES),
    *(np.float64("nan"), np.array(2.5), np.zeros((0, 3)), np.zeros((3, 0), order="F")),
    *(True, None, "", "é\x00😀", b"", b"\x00", (), [], {}, ((),), [[]]),
    {"a": 1, 2: None, b"b": (), Shade.DARK: Shade},
    Limits(low=-0.0, names=("a", "b")),
    Leaf([Leaf(1), Leaf(2.0)]),
    Enrolment,
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_the_same_value_comes_out(value: Any) -> None:
    data = encode(value)
    found = decode(data)
    assert same(found, value)
    assert encode(found) == data
    assert encoded_bytes(value) == len(data)


@pytest.mark.parametrize(
    "array",
    [
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        np.arange(24.0).reshape(4, 6)[::2, 1::2],
        np.arange(24.0).reshape(2, 3, 4).transpose(1, 0, 2),
        np.arange(4, dtype=">i4"),
        np.broadcast_to(np.float32(3.0), (2, 5)),
    ],
)
def test_arrays_keep_the_memory_order_that_pickle_keeps(array: np.ndarray) -> None:
    import pickle

    found, pickled = decode(encode(array)), pickle.loads(pickle.dumps(array))
    assert same(array, found)
    assert found.flags.c_contiguous == pickled.flags.c_contiguous
    assert found.flags.f_contiguous == pickled.flags.f_contiguous
    assert found.flags.owndata
    assert found.flags.writeable
    assert found.flags.aligned


NUMBERS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-(1 << 200), 1 << 200),
    st.floats(),
    st.text(),
    st.binary(),
    st.sampled_from([Shade.DARK, Enrolment, Limits(high=2.0), Kind.POLICY, silent(NOISE)]),
    arrays.arrays(
        st.sampled_from(DTYPES), arrays.array_shapes(min_dims=0, min_side=0, max_side=4), fill=st.nothing()
    ),
    st.sampled_from(DTYPES).flatmap(lambda dtype: arrays.arrays(dtype, ()).map(lambda array: array[()])),
)
KEYS = st.one_of(st.text(), st.binary(), st.integers(-(1 << 63), (1 << 63) - 1), st.just(Shade.DARK))
ANY = st.recursive(
    NUMBERS,
    lambda inner: st.one_of(
        st.lists(inner),
        st.lists(inner).map(tuple),
        st.dictionaries(KEYS, inner),
        inner.map(Said),
        inner.map(Heard),
        st.lists(inner).map(Leaf),
    ),
    max_leaves=20,
)


@given(ANY)
@settings(max_examples=100)
def test_any_value_of_the_closed_set_comes_out(value: Any) -> None:
    data = encode(value)
    assert same(decode(data), value)
    assert encoded_bytes(value) == len(data)


@given(st.binary(max_size=200), st.integers(0, 1 << 40))
def test_any_bytes_raise_one_type_of_error(tail: bytes, memory: int) -> None:
    for data in (tail, b"RY\x01" + varint(memory) + tail):
        try:
            found = decode(data)
        except CodecError:
            continue
        assert encode(found) == data


def test_cached_properties_stay_and_are_computed_again() -> None:
    leaf = Leaf(3)
    bare = encode(leaf)
    assert leaf.doubled == 6
    assert encode(leaf) == bare
    assert "doubled" not in vars(decode(bare))
    assert decode(bare).doubled == 6


@pytest.mark.parametrize(
    ("value", "names"),
    [
        (NotRegistered(1), "test_codec.NotRegistered"),
        (Said({"deep": (NotRegistered(1),)}), "test_codec.NotRegistered"),
        (Colour.RED, "test_codec.Colour"),
        (NotRegistered, "test_codec.NotRegistered"),
        (DataSettings(source="iris"), "raydr.scenarios.schema.data.DataSettings"),
        (int, "builtins.int"),
        ({1, 2}, "builtins.set"),
        (object(), "builtins.object"),
        (len, "builtin_function_or_method"),
        (1j, "builtins.complex"),
        (np.array(["text"]), "<U4"),
        (np.array([None]), "object"),
        (np.longdouble(1), "float128"),
        (np.ma.masked_array([1.0]), "MaskedArray"),
        ({1.5: 2}, "key is a float"),
        ({1 << 64: 2}, "key is a int"),
        ({(1,): 2}, "key is a tuple"),
        ("\ud800", "UTF-8"),
    ],
)
def test_what_may_not_travel_is_refused_by_name(value: Any, names: str) -> None:
    for work in (encode, encoded_bytes):
        with pytest.raises(CodecError, match=names):
            work(value)


def nested(levels: int) -> Any:
    value: Any = None
    for _ in range(levels):
        value = (value,)
    return value


def test_depth_is_bounded_on_both_sides() -> None:
    deepest = encode(nested(DEPTH))
    assert same(decode(deepest), nested(DEPTH))
    with pytest.raises(CodecError, match=f"more than {DEPTH} levels"):
        encode(nested(DEPTH + 1))
    many = b"RY\x01" + varint(1 << 30) + b"t\x01" * 100_000 + b"N"
    with pytest.raises(CodecError, match=f"more than {DEPTH} levels"):
        decode(many)


def body(value: Any) -> bytes:
    """Return a message's bytes after the declared memory."""
    data = encode(value)
    place = 3
    while data[place] & 0x80:
        place += 1
    return data[place + 1 :]


def test_memory_is_declared_and_bounded() -> None:
    data = encode(np.zeros(1000))
    assert decode(data, limit=8128) is not None
    with pytest.raises(CodecError, match=r"declares 8,128 bytes of memory, more than 8,127"):
        decode(data, limit=8127)
    for declared in (8127, 8129):
        with pytest.raises(CodecError, match="declare"):
            decode(b"RY\x01" + varint(declared) + body(np.zeros(1000)))


def huge(*shape: int) -> bytes:
    """A message with an array of this shape and 8 bytes."""
    head = b"RY\x01" + varint(LIMIT) + b"a" + bytes([DTYPES.index(np.dtype("<f8")), len(shape)])
    return head + b"".join(map(varint, shape)) + bytes(8)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "not a message of raydr"),
        (b"\x80\x05", "not a message of raydr"),
        (b"RY\x02\x00N", "has version 2 of the format, but this raydr reads version 1"),
        (encode(None) + b"N", "1 more bytes follow"),
        (encode("abc")[:-1], "3 bytes are due, but only 2 follow"),
        (huge(1 << 30), "8,589,934,592 bytes are due, but only 8 follow"),
        (huge(1 << 62, 1 << 62), "which no memory holds"),
        (huge(0, 1 << 62), "which no memory holds"),
        (b"RY\x01" + varint(LIMIT) + b"l" + varint(1 << 40), "1,099,511,627,776 items are due"),
        (b"RY\x01" + varint(LIMIT) + b"z", "unknown kind of value b'z'"),
        (b"RY\x01" + varint(LIMIT) + b"a\x55\x00", "unknown type of numbers 85"),
        (b"RY\x01" + varint(LIMIT) + b"a\x00\x01\x01\x02", "truth values"),
        (b"RY\x01" + varint(LIMIT) + b"n\x00\x02", "its type has not"),
        (b"RY\x01" + varint(LIMIT) + b"s\x01\xff", "is not UTF-8"),
        (b"RY\x01" + varint(LIMIT) + b"I\x01\x00", "more bytes than it needs"),
        (b"RY\x01" + varint(LIMIT) + b"i", "8 bytes are due"),
        (b"RY\x01" + b"\xff" * 10, "more than 63 bits"),
        (b"RY\x01\x80\x00N", "needless zeros"),
        (b"RY\x01" + varint(LIMIT) + b"m\x02s\x01aNs\x01aN", "the key 'a' twice"),
        (b"RY\x01" + varint(LIMIT) + b"m\x01NN", "key that is a NoneType"),
        (b"RY\x01" + varint(LIMIT) + b"O\x03", "type number 3 is due"),
        (b"RY\x01" + varint(LIMIT) + b"O\x00\x09os.system\x00\x00\x00\x00", "unknown type 'os.system'"),
        (b"RY\x01" + varint(LIMIT) + b"T\x00\x0fsubprocess.Popen", "unknown type 'subprocess.Pope'"),
        (encode(Leaf(7)).replace(b"i\x07" + bytes(7), b"s\x08" + b"a" * 8)[:-1], "bytes"),
        (encode(Shade.DARK).replace(b"DARK", b"MARK"), "Shade has no member 'MARK'"),
        (
            encode(Limits(low=1.0)).replace(struct.pack("<d", 1.0), struct.pack("<d", math.nan)),
            "refuses its fields",
        ),
        (encode(Said(0)).replace(b"Said", b"Sait"), "unknown type"),
    ],
)
def test_broken_messages_are_refused_with_place_and_reason(data: bytes, message: str) -> None:
    with pytest.raises(CodecError, match=message):
        decode(data)


def test_constructors_check_what_arrives() -> None:
    object.__setattr__(forged := Leaf(1), "value", "text")
    with pytest.raises(CodecError, match="Leaf refuses its fields: ValueError: a leaf holds no text"):
        decode(encode(forged))
    forged = NOISE.model_copy(update={"level": -1.0})
    with pytest.raises(CodecError, match="GaussianNoise refuses its fields"):
        decode(encode(forged))


def test_settings_whose_validators_read_files_never_travel() -> None:
    """data.codebook is the path of a file, which a scenario reads at once."""
    import raydr.scenarios.runner
    from raydr.wire_types import _BY_NAME

    assert raydr.scenarios.runner is not None
    known = [kind for kind in _BY_NAME.values() if issubclass(kind, Settings)]
    assert GaussianNoise in known
    sections = [kind for kind in known if not issubclass(kind, Mechanism)]
    assert not [kind.__qualname__ for kind in sections if kind.__module__.startswith("raydr.scenarios.")]


def test_a_class_with_other_fields_is_refused() -> None:
    @dataclass(frozen=True)
    class Version:
        before: int

    data = encode(travels(Version)(1))

    def later() -> type:
        @dataclass(frozen=True)
        class Version:
            after: int

        Version.__qualname__ = name
        return travels(Version)

    name = Version.__qualname__
    newer = later()
    assert newer is not Version
    with pytest.raises(CodecError, match="has other fields here than where the message was written"):
        decode(data)


def test_two_modules_cannot_use_one_name() -> None:
    taken = type("Enrol", (), {"__module__": "federation.enrolment"})
    with pytest.raises(TypeError, match=r"same name in messages, federation\.enrolment\.Enrol"):
        travels(taken)
    assert wire_type("federation.enrolment.Enrol") is Enrol


def mutated(data: bytes, draw: random.Random) -> bytes:
    """Return a message with bytes changed, cut out, repeated, or taken from another place."""
    found = bytearray(data)
    for _ in range(draw.choice((1, 1, 1, 2, 4))):
        at = draw.randrange(len(found) + 1)
        match draw.randrange(6):
            case 0 if at < len(found):
                found[at] ^= 1 << draw.randrange(8)
            case 1 if at < len(found):
                found[at] = draw.choice(b"\x00\x01\x7f\x80\xffaoOlmtTEIisfb")
            case 2:
                del found[at : at + draw.randrange(1, 20)]
            case 3:
                found[at:at] = found[at : at + draw.randrange(1, 20)]
            case 4:
                found[at:at] = varint(1 << draw.randrange(63))
            case 5:
                del found[at:]
    return bytes(found)


def declared_by(data: bytes) -> int:
    """Return the memory that a message declares; 0 for bytes without a header."""
    number, place = 0, 3
    while data[:3] == b"RY\x01" and place < min(len(data), 12):
        number |= (data[place] & 0x7F) << 7 * (place - 3)
        if data[place] < 0x80:
            return min(number, LIMIT)
        place += 1
    return 0


ROOM = 1 << 16
"""Memory for the error and its traceback, and for what classes compute when they are first used."""


@pytest.mark.parametrize("count", [2_000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_mutated_messages_are_errors_or_values_within_the_declared_memory(count: int) -> None:
    draw = random.Random(count)
    originals = [encode(value) for value in VALUES]
    originals += [encode({"many": [(index, None, {}) for index in range(300)], "rows": np.zeros((200, 5))})]
    for data in originals:
        decode(data)
    values = 0
    tracemalloc.start()
    try:
        for _ in range(count):
            data = mutated(draw.choice(originals), draw)
            tracemalloc.reset_peak()
            before = tracemalloc.get_traced_memory()[0]
            try:
                found = decode(data)
            except CodecError:
                found = None
            else:
                values += 1
            peak = tracemalloc.get_traced_memory()[1] - before
            assert peak <= 2 * declared_by(data) + ROOM, (peak, declared_by(data), data[:200])
            if found is not None:
                again = encode(found)
                assert same(decode(again), found)
    finally:
        tracemalloc.stop()
    assert count / 20 < values < count / 2, "mutations reach the values as well as the structure"


@pytest.mark.parametrize(
    "value",
    [
        [None] * 3_000,
        [[]] * 3_000,
        [{}] * 3_000,
        [np.float32(1)] * 3_000,
        [np.zeros(())] * 3_000,
        dict.fromkeys(range(3000)),
        {str(index): {} for index in range(3_000)},
        ["😀" + "a" * 1000] * 50,
        [1 << 2000] * 500,
        [Leaf(1)] * 1000,
        [Limits()] * 1000,
        [Shade.DARK] * 3_000,
        [NOISE] * 500,
        np.zeros(10**5),
        np.zeros((500, 500), order="F"),
        np.zeros(10**5, bool),
        b"a" * 10**5,
    ],
    ids=lambda value: type(value[0] if isinstance(value, list) else value).__name__,
)
def test_small_values_take_no_more_than_they_declare(value: Any) -> None:
    data = encode(value)
    decode(data)
    with peak_memory() as peak:
        found = decode(data)
    assert found is not None
    assert peak.bytes <= 2 * declared_by(data) + ROOM, peak.bytes / declared_by(data)
