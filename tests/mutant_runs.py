"""How ``mutants.py`` runs tests: once with coverage on the code as it is, then those that reach a mutant against it.

All tests are collected once. A mutant that changes functions alone runs in a process that is forked from there, with
the code of these functions exchanged; one that changes what runs at import runs in a process that imports all anew.
"""

from __future__ import annotations

import functools
import gc
import hashlib
import importlib
import importlib.machinery
import importlib.util
import json
import os
import shutil
import signal
import sys
import time
import types
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
LIBRARIES = (
    *("numpy", "scipy.linalg", "scipy.optimize", "scipy.sparse.linalg", "scipy.spatial", "scipy.special"),
    *("scipy.stats", "pydantic", "hypothesis", "sklearn.datasets", "sklearn.neighbors", "jinja2", "click"),
    *("dp_accounting", "dp_accounting.pld", "dp_accounting.rdp", "cryptography", "randomgen"),
)
"""Imported before any process is forked that imports the package anew."""
OPTIONS = (
    "-q",
    "-s",
    "--disable-warnings",
    "-o",
    "addopts=",
    "-m",
    "not slow and not ray",
    "-p",
    "no:cacheprovider",
    "-p",
    "no:timeout",
)
ROOMS = ("raydr", "actors", "scenarios", "tune")
PATIENCE = 60.0
"""Seconds a mutant has, beside five times what its tests took on the code as it is."""
_NO_FUNCTION = 98
"""Exit status of a process that found nothing to exchange the code of."""
_NOT_THERE = 99
"""Exit status of a process that could not run the tests, such as one of a test that was renamed since."""


class Outcome(StrEnum):
    """What became of a mutant."""

    KILLED = "killed"
    TIMED_OUT = "timed out"
    SURVIVED = "survived"
    NOT_RUN = "not run"
    EQUIVALENT = "equivalent"


@dataclass(frozen=True)
class Mutant:
    """One change: ``before`` and ``after`` are the changed lines, without their indentation; ``span`` its statement."""

    path: str
    line: int
    span: tuple[int, int]
    before: str
    after: str
    code: str

    @property
    def name(self) -> str:
        """What tells it from others as long as its line stays as it is."""
        return f"{self.path}: {self.before} -> {self.after}"

    @property
    def module(self) -> str:
        """The name under which its file is imported."""
        name = ".".join(Path(self.path).with_suffix("").parts).removesuffix(".__init__")
        return name if name.startswith("raydr") else f"raydr.{name}"


@dataclass(frozen=True)
class Measured:
    """What one test executes: ``lines`` by file; its own ``seconds``, and those of each fixture that it shares."""

    seconds: float
    shared: dict[str, float]
    lines: dict[str, list[int]]


JobMessage = Callable[[Mutant, Outcome], None]


@dataclass
class Reach:
    """Which tests execute which lines, and which of them a mutant meets.

    ``measured`` holds for each test its seconds and, by file, the lines that it executes; ``near`` for each file the
    test files about it; ``seconds`` of tests are met at most.
    """

    measured: dict[str, Measured]
    near: dict[str, list[str]]
    seconds: float
    killers: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self._of_line: dict[tuple[str, int], set[str]] = defaultdict(set)
        for test, found in self.measured.items():
            for path, numbers in found.lines.items():
                for number in numbers:
                    self._of_line[path, number].add(test)
                self._of_line[path, 0].add(test)

    def of(self, mutant: Mutant, whole_module: bool) -> tuple[list[str], float]:
        """Return the tests that a mutant meets, in order, and the seconds they take on the code as it is."""
        lines = [0] if whole_module else range(mutant.span[0], mutant.span[1] + 1)
        found = set().union(*(self._of_line[mutant.path, line] for line in lines))
        order = {file: place for place, file in enumerate(self.near[mutant.path])}
        if whole_module:  # each of their files is imported for each mutant
            files = sorted(
                {test.split("::")[0] for test in found}, key=lambda file: order.get(file, len(order))
            )[:3]
            found = {test for test in found if test.split("::")[0] in files}

        def cost(test: str) -> float:
            of = self.measured[test]
            return max(
                0.01, of.seconds + sum(seconds for name, seconds in of.shared.items() if name not in made)
            )

        def rank(test: str) -> tuple[float, ...]:
            return -self.killers[test] / cost(test), cost(test) * (
                1 + order.get(test.split("::", maxsplit=1)[0], len(order))
            )

        made: set[str] = set()
        chosen, total = [], 0.0
        for test in sorted(found, key=rank):
            if total and total + cost(test) > self.seconds:
                continue
            chosen.append(test)
            total += cost(test)
            made.update(self.measured[test].shared)
        return chosen, total


class _Chosen:
    """Leaves out tests that other processes run, since these do not see a change."""

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = [
            item for item in items if not {"browser", "cluster"} & set(getattr(item, "fixturenames", ()))
        ]


class _Measuring(_Chosen):
    """Records for every test its seconds and the lines that it and its shared fixtures execute."""

    def __init__(self) -> None:
        import coverage

        places = [str(ROOT / room / "*") for room in ROOMS]
        self.coverage = coverage.Coverage(data_file=None, include=places, config_file=False)
        self.seconds: dict[str, float] = defaultdict(float)
        self.shared: dict[str, list[str]] = {}
        self.passed: set[str] = set()
        self.now = ""

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_finish(self) -> None:
        self.coverage.start()

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any, request: Any) -> Iterator[None]:
        if fixturedef.scope == "function":
            return (yield)
        outer, name = self.now, _shared(fixturedef)
        began, before = time.monotonic(), sum(self.seconds.values())
        self._enter(name)
        try:
            return (yield)
        finally:
            # Without what the fixtures took that it asked for.
            self.seconds[name] += time.monotonic() - began - (sum(self.seconds.values()) - before)
            self._enter(outer)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._enter(item.nodeid)
        self.shared[item.nodeid] = [
            _shared(found)
            for several in item._fixtureinfo.name2fixturedefs.values()  # type: ignore[attr-defined]
            for found in several
            if found.scope != "function"
        ]
        began, before = time.monotonic(), sum(self.seconds.values())
        result = yield
        self.seconds[item.nodeid] = time.monotonic() - began - (sum(self.seconds.values()) - before)
        self._enter("")
        return result

    def _enter(self, context: str) -> None:
        self.now = context
        self.coverage.switch_context(context)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" and report.passed and not hasattr(report, "wasxfail"):
            self.passed.add(report.nodeid)

    def write(self, file: Path) -> None:
        """Write what was found of every test that passed."""
        self.coverage.stop()
        data = self.coverage.get_data()
        lines: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
        for path in data.measured_files():
            for line, contexts in data.contexts_by_lineno(path).items():
                for context in contexts:
                    lines[context][_short(path)].append(line)
        found = {}
        for test in self.passed:
            merged: dict[str, set[int]] = defaultdict(set)
            for context in (test, *self.shared[test]):
                for path, numbers in lines.get(context, {}).items():
                    merged[path].update(numbers)
            found[test] = Measured(
                self.seconds[test],
                {name: self.seconds[name] for name in self.shared[test]},
                {path: sorted(numbers) for path, numbers in merged.items()},
            )
        sources = {_short(str(path)): _digest(path) for room in ROOMS for path in (ROOT / room).rglob("*.py")}
        whole = file.with_suffix(f".{os.getpid()}")
        whole.write_text(
            json.dumps({"sources": sources, "tests": {test: asdict(of) for test, of in found.items()}})
        )
        whole.rename(file)


def _shared(fixture: Any) -> str:
    return f"fixture {fixture.baseid} {fixture.argname}"


def _short(path: str) -> str:
    """Return a file's path from the root of the repository, links resolved, as mutants have it."""
    return str(Path(path).resolve().relative_to(ROOT))


def _forked(work: Callable[[], int], scratch: Path) -> int:
    """Fork a process, in a group and with folders of its own, that ends with what ``work`` returns."""
    child = os.fork()
    if child:
        return child
    code = _NOT_THERE
    try:
        os.setsid()
        sink = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(sink, stream)
        own = scratch / str(os.getpid())
        own.mkdir()
        os.environ.update(PYTEST_DEBUG_TEMPROOT=str(own), XDG_STATE_HOME=str(own))
        code = work()
    finally:
        os._exit(code)


def measured(
    tests: list[str], sources: list[Path], jobs: int, scratch: Path, cache: Path
) -> dict[str, Measured]:
    """Run test files on the code as it is; return of every test that passes its seconds and the lines it executes.

    What is in the cache is not run again as long as the test file and the source files are what they were.
    """
    for name in LIBRARIES:
        importlib.import_module(name)
    digests = {_short(str(source)): _digest(source) for source in sources}

    def run(file: str, into: Path) -> int:
        plugin = _Measuring()
        pytest.main([*OPTIONS, "-n", "0", file], plugins=[plugin])
        plugin.write(into)
        return 0

    cache.mkdir(exist_ok=True)
    files = [cache / f"{Path(test).stem}-{_digest(ROOT / test)}.reach" for test in tests]
    waiting = [pair for pair in zip(tests, files, strict=True) if not _holds(pair[1], digests)]
    running: set[int] = set()
    while waiting or running:
        while waiting and len(running) < jobs:
            test, into = waiting.pop()
            running.add(_forked(functools.partial(run, test, into), scratch))
        running.discard(os.wait()[0])
    for test, file in zip(tests, files, strict=True):
        if not file.exists():
            raise SystemExit(
                f"{test} was not measured: its process ended. Run the file by itself, then again."
            )
    found = [json.loads(file.read_text())["tests"] for file in files]
    return {test: Measured(**of) for tests_of_file in found for test, of in tests_of_file.items()}


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()[:16]


def _holds(file: Path, digests: dict[str, str]) -> bool:
    if not file.exists():
        return False
    then = json.loads(file.read_text())["sources"]
    return all(then.get(path) == digest for path, digest in digests.items())


def run_all(
    mutants: list[Mutant], tests: list[str], reach: Reach, jobs: int, scratch: Path, told: JobMessage
) -> None:
    """Tell of every mutant what became of it, as they end."""
    inside: list[Mutant] = []
    anew: list[Mutant] = []
    for mutant in mutants:
        (inside if _exchanged(mutant) is not None else anew).append(mutant)
    modules = {mutant.module for mutant in inside}
    plugin = _Collected(modules, lambda run: _all_of(inside, reach, jobs, scratch, run, told))
    if not (child := os.fork()):  # what it imports stays out of the processes that import anew
        pytest.main([*OPTIONS, "--no-header", "-n", "0", *tests], plugins=[plugin])
        os._exit(0)
    os.waitpid(child, 0)
    _all_of(anew, reach, jobs, scratch, _import_anew, told)


def _all_of(
    mutants: list[Mutant],
    reach: Reach,
    jobs: int,
    scratch: Path,
    run: Callable[[Mutant, list[str]], int],
    told: JobMessage,
) -> None:
    waiting, running = list(reversed(mutants)), dict[int, tuple[Mutant, float]]()
    while waiting or running:
        while waiting and len(running) < jobs:
            mutant = waiting.pop()
            chosen, seconds = reach.of(mutant, run is _import_anew)
            if not chosen:
                told(mutant, Outcome.NOT_RUN)
                continue
            child = _forked(functools.partial(run, mutant, chosen), scratch)
            running[child] = mutant, time.monotonic() + PATIENCE + 5 * seconds
        for child, (mutant, deadline) in list(running.items()):
            ended, status = os.waitpid(child, os.WNOHANG)
            if not ended and time.monotonic() < deadline:
                continue
            if _kill(child) and not ended:
                os.waitpid(child, 0)
            del running[child]
            killer = scratch / str(child) / "killer"
            if killer.exists():
                reach.killers[killer.read_text()] += 1
            shutil.rmtree(scratch / str(child), ignore_errors=True)
            ending = {0: Outcome.SURVIVED, _NO_FUNCTION: Outcome.NOT_RUN, _NOT_THERE: Outcome.NOT_RUN}
            code = os.waitstatus_to_exitcode(status) if ended else None
            told(mutant, Outcome.TIMED_OUT if code is None else ending.get(code, Outcome.KILLED))
        time.sleep(0.005)


def _kill(child: int) -> bool:
    """End a process and all that it started."""
    try:
        os.killpg(child, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def _note(killer: str) -> None:
    (Path(os.environ["XDG_STATE_HOME"]) / "killer").write_text(killer)


def _exchanged(mutant: Mutant) -> list[tuple[types.CodeType, types.CodeType]] | None:
    """Return the functions whose code a mutant changes, before and after; None where it changes what runs at import."""
    path = ROOT / mutant.path
    pairs = []

    def compare(before: types.CodeType, after: types.CodeType, is_function: bool) -> bool:
        if is_function:
            if before.co_name in ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"):  # runs at import
                return before == after and _constants(before) == _constants(after)
            if before != after or _constants(before) != _constants(after):
                pairs.append((before, after))
            return True
        inner = [
            [value for value in code.co_consts if isinstance(value, types.CodeType)]
            for code in (before, after)
        ]
        if before.co_code != after.co_code or len(inner[0]) != len(inner[1]):
            return False
        others = [
            [value for value in code.co_consts if not isinstance(value, types.CodeType)]
            for code in (before, after)
        ]
        if repr(others[0]) != repr(others[1]) or before.co_names != after.co_names:
            return False
        return all(
            compare(old, new, bool(old.co_flags & 0x2))  # a function has CO_NEWLOCALS
            for old, new in zip(*inner, strict=True)
        )

    codes = [compile(text, str(path), "exec", dont_inherit=True) for text in (path.read_text(), mutant.code)]
    return pairs if compare(codes[0], codes[1], False) and pairs else None


def _constants(code: types.CodeType) -> str:
    """Return what tells 1 from 1.0 and True, which are equal."""
    return repr(
        [value if not isinstance(value, types.CodeType) else _constants(value) for value in code.co_consts]
    )


class _Collected(_Chosen):
    """Holds all tests collected, in place of running them, while ``work`` has some of them run against mutants."""

    def __init__(self, modules: set[str], work: Callable[[Callable[[Mutant, list[str]], int]], None]) -> None:
        self.modules, self.work = modules, work
        self.items: dict[str, pytest.Item] = {}

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self.items = {item.nodeid: item for item in session.items}
        self.functions: dict[tuple[str, str, int], list[types.FunctionType]] = defaultdict(list)
        for module in self.modules:  # some are imported by functions alone
            importlib.import_module(module)
        for found in gc.get_objects():
            if type(found) is functools._lru_cache_wrapper:
                found.cache_clear()
            elif type(found) is types.FunctionType and found.__code__.co_filename.startswith(str(ROOT)):
                self.functions[_place(found.__code__)].append(found)
        gc.freeze()  # what is collected is shared by all forked processes
        self.work(self.against)
        return True

    def against(self, mutant: Mutant, chosen: list[str]) -> int:
        """Run tests against a mutant in this process; return whether one failed."""
        from _pytest.runner import runtestprotocol

        for before, after in _exchanged(mutant) or ():
            if not self.functions[_place(before)]:
                return _NO_FUNCTION
            for function in self.functions[_place(before)]:
                function.__code__ = after
        for test, following in zip(chosen, [*chosen[1:], None], strict=True):
            after_it = self.items[following] if following else None
            reports = runtestprotocol(self.items[test], nextitem=after_it, log=False)
            if any(report.failed for report in reports):
                _note(test)
                return 1
        return 0


def _place(code: types.CodeType) -> tuple[str, str, int]:
    return _short(code.co_filename), code.co_qualname, code.co_firstlineno


class _Changed(importlib.machinery.SourceFileLoader):
    """Loads one module from text in memory."""

    code = ""

    def get_code(self, fullname: str) -> Any:
        """Compile the text, whatever lies in a cache."""
        return compile(self.code, self.path, "exec", dont_inherit=True)


def _import_anew(mutant: Mutant, chosen: list[str]) -> int:
    """Run tests against a mutant of which nothing is imported yet; return whether one failed."""

    class Finder:
        @staticmethod
        def find_spec(name: str, *_: object) -> importlib.machinery.ModuleSpec | None:
            if name != mutant.module:
                return None
            loader = _Changed(name, str(ROOT / mutant.path))
            loader.code = mutant.code
            return importlib.util.spec_from_file_location(name, ROOT / mutant.path, loader=loader)

    class Noting:
        def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
            if report.failed:
                _note(report.nodeid)

    sys.meta_path.insert(0, Finder)
    return int(pytest.main([*OPTIONS, "-n", "0", "-x", *chosen], plugins=[Noting()]))
