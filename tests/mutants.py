"""Mutation testing: change the code of a room in one place at a time, and report which changes no test notices.

Operators and positions are cosmic-ray's. Each mutant runs in a process of its own that was forked after the libraries
were imported and that sees the changed module in memory: no file changes, so several run at once.

    make mutants ROOM=raydr/privacy              # every mutant of a folder or a file
    make mutants ROOM=raydr/privacy SAMPLE=100   # a random sample of them

The tests are those that import the mutated module, then those that import its package; tests that start Ray or a
browser, and slow ones, are left out, since other processes do not see the change. A survivor that changes no behaviour
is listed in ``tests/equivalent_mutants.yaml`` with the reason.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import importlib.machinery
import importlib.util
import json
import os
import random
import re
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent
EQUIVALENT = ROOT / "tests" / "equivalent_mutants.yaml"
LIBRARIES = (
    *(
        "numpy",
        "scipy.linalg",
        "scipy.optimize",
        "scipy.sparse.linalg",
        "scipy.spatial",
        "scipy.special",
        "scipy.stats",
    ),
    *("pydantic", "pytest", "hypothesis", "sklearn.datasets", "sklearn.neighbors", "jinja2", "click"),
    *("dp_accounting", "dp_accounting.pld", "dp_accounting.rdp", "cryptography", "randomgen"),
)
"""Imported once, before any mutant is forked."""
OPERATORS = re.compile(
    r"core/(AddNot|NumberReplacer|ReplaceAndWithOr|ReplaceOrWithAnd|ReplaceTrueWithFalse|ReplaceFalseWithTrue"
    r"|ReplaceBreakWithContinue|ReplaceContinueWithBreak|ReplaceUnaryOperator_Delete_(Not|USub)|ZeroIterationForLoop"
    r"|ReplaceBinaryOperator_(Add_Sub|Sub_Add|Mul_Div|Div_Mul|Pow_Mul|FloorDiv_Mul|Mod_Mul|BitAnd_BitOr|BitOr_BitAnd)"
    r"|ReplaceComparisonOperator_(Eq_NotEq|NotEq_Eq|Is_IsNot|IsNot_Is|Lt_LtE|LtE_Lt|Gt_GtE|GtE_Gt|Lt_Gt|Gt_Lt|LtE_Gt|GtE_Lt))$"
)
"""Those whose change runs: a float has no bits to shift, so its mutants would die of their type alone."""
LEAST_KILLED = 0.95


@dataclass(frozen=True)
class Mutant:
    """One change: ``before`` and ``after`` are the changed lines, without their indentation."""

    path: str
    line: int
    operator: str
    occurrence: int
    before: str
    after: str
    code: str

    @property
    def name(self) -> str:
        """What tells it from others as long as its line stays as it is."""
        return f"{self.path}: {self.before} -> {self.after}"


def mutants_of(path: Path) -> Iterator[Mutant]:
    """Yield every change of a file that is more than a change of an annotation, a docstring or a decorator."""
    from cosmic_ray.commands.init import _all_work_items
    from cosmic_ray.mutating import mutate_code
    from cosmic_ray.plugins import get_operator

    source = path.read_text()
    original, seen = _behaviour(source), set()
    for item in _all_work_items([path], {}):
        spec = item.mutations[0]
        if not OPERATORS.match(spec.operator_name):
            continue
        code = mutate_code(source, get_operator(spec.operator_name)(), spec.occurrence)
        if code is None or code in seen or _behaviour(code) in (None, original):
            continue
        seen.add(code)
        diff = list(difflib.unified_diff(source.split("\n"), code.split("\n"), n=0, lineterm=""))[2:]
        before, after = (" ".join(line[1:].strip() for line in diff if line[0] == sign) for sign in "-+")
        yield Mutant(
            str(path.relative_to(ROOT)),
            spec.start_pos[0],
            spec.operator_name,
            spec.occurrence,
            before,
            after,
            code,
        )


def _behaviour(source: str) -> str | None:
    """Return the syntax tree without what does nothing when it runs; None where it does not parse."""
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return None
    for node in ast.walk(tree):
        for name in ("annotation", "returns"):
            if hasattr(node, name):
                setattr(node, name, None)
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            node.decorator_list = []
    return ast.dump(tree)


def tests_of(path: Path) -> list[str]:
    """Return the test files that import a module, then those that import its package by name."""
    module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
    if not module.startswith("raydr."):
        module = f"raydr.{module}"
    package, _, own = module.rpartition(".")
    direct = re.compile(rf"\b{re.escape(module)}\b|from {re.escape(package)} import [^\n]*\b{own}\b")
    near = re.compile(rf"from {re.escape(package)}(\.\w+)* import|import {re.escape(package)}\b")
    texts = {test: test.read_text() for test in sorted((ROOT / "tests").rglob("test_*.py"))}
    first = [test for test, text in texts.items() if direct.search(text)]
    then = [test for test, text in texts.items() if near.search(text) and test not in first]
    return [str(test.relative_to(ROOT)) for test in (*first, *then)]


class _Changed(importlib.machinery.SourceFileLoader):
    """Loads one module from text in memory."""

    code = ""

    def get_code(self, fullname: str) -> Any:
        """Compile the text, whatever lies in a cache."""
        return compile(self.code, self.path, "exec", dont_inherit=True)


def _put_in_place(mutant: Mutant) -> None:
    path = ROOT / mutant.path
    module = ".".join(Path(mutant.path).with_suffix("").parts).removesuffix(".__init__")
    module = module if module.startswith("raydr") else f"raydr.{module}"

    class Finder:
        @staticmethod
        def find_spec(name: str, *_: object) -> importlib.machinery.ModuleSpec | None:
            if name != module:
                return None
            loader = _Changed(name, str(path))
            loader.code = mutant.code
            return importlib.util.spec_from_file_location(name, path, loader=loader)

    sys.meta_path.insert(0, Finder)  # type: ignore[arg-type]


def start(mutant: Mutant | None, tests: list[str]) -> int:
    """Fork a process that runs the tests against a mutant, or against the code as it is; return its number."""
    child = os.fork()
    if child:
        return child
    os.setsid()
    sink = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(sink, stream)
    code = 99
    try:
        if mutant is not None:
            _put_in_place(mutant)
        import pytest

        selected = "not slow and not ray and not browser"
        code = int(
            pytest.main(
                ["-x", "-q", "-o", "addopts=", "-m", selected, "-p", "no:cacheprovider", "-n", "0", *tests]
            )
        )
    finally:
        os._exit(code)


def run_all(
    mutants: list[Mutant], tests: dict[str, list[str]], limits: dict[str, float], jobs: int
) -> Iterator[tuple[Mutant, str]]:
    """Yield every mutant with ``killed``, ``survived`` or ``time-out``, as they end."""
    waiting, running = list(reversed(mutants)), dict[int, tuple[Mutant, float]]()
    while waiting or running:
        while waiting and len(running) < jobs:
            mutant = waiting.pop()
            running[start(mutant, tests[mutant.path])] = mutant, time.monotonic() + limits[mutant.path]
        for child, (mutant, deadline) in list(running.items()):
            ended, status = os.waitpid(child, os.WNOHANG)
            if not ended and time.monotonic() < deadline:
                continue
            if not ended:
                os.waitpid(child, 0) if _kill(child) else None
            else:
                _kill(child)
            del running[child]
            outcome = (
                "time-out"
                if not ended
                else "survived"
                if os.waitstatus_to_exitcode(status) == 0
                else "killed"
            )
            yield mutant, outcome
        time.sleep(0.05)


def _kill(child: int) -> bool:
    """End a process and all that it started."""
    try:
        os.killpg(child, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def _baseline(path: str, tests: list[str]) -> float:
    """Return the seconds that the tests take on the code as it is.

    Raises
    ------
    SystemExit
        If they do not pass.
    """
    began = time.monotonic()
    _, status = os.waitpid(start(None, tests), 0)
    if os.waitstatus_to_exitcode(status):
        raise SystemExit(
            f"The tests of {path} fail without any change: python -m pytest -x -n 0 {' '.join(tests)}"
        )
    return time.monotonic() - began


def main() -> int:
    """Run the mutants of a room and print those that survive."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("room", nargs="+", help="files or folders, such as raydr/privacy")
    parser.add_argument(
        "--sample", type=int, default=0, help="so many mutants, drawn at random; all without it"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument(
        "--tests", nargs="*", help="test files to run instead of those found by their imports"
    )
    parser.add_argument("--json", type=Path, help="file for the results")
    options = parser.parse_args()

    os.environ.update(OPENBLAS_NUM_THREADS="1", OMP_NUM_THREADS="1", NUMBA_NUM_THREADS="1")
    sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
    os.chdir(ROOT)
    for name in LIBRARIES:
        importlib.import_module(name)
    rooms = [Path(room) for room in options.room]
    files = [file for room in rooms for file in (sorted(room.rglob("*.py")) if room.is_dir() else [room])]
    mutants = [mutant for file in files for mutant in mutants_of(file.resolve())]
    if options.sample:
        mutants = random.Random(options.seed).sample(mutants, min(options.sample, len(mutants)))
    tests = {mutant.path: options.tests or tests_of(ROOT / mutant.path) for mutant in mutants}
    limits = {path: 20 + 3 * options.jobs * _baseline(path, chosen) for path, chosen in tests.items()}
    known = {entry["mutant"]: entry["reason"] for entry in yaml.safe_load(EQUIVALENT.read_text()) or []}
    print(f"{len(mutants)} mutants of {len(tests)} files", flush=True)

    results, survivors = [], []
    for mutant, outcome in run_all(mutants, tests, limits, options.jobs):
        equivalent = outcome == "survived" and mutant.name in known
        results.append({**asdict(mutant), "code": "", "outcome": "equivalent" if equivalent else outcome})
        if outcome == "survived" and not equivalent:
            survivors.append(mutant)
            print(
                f"survived {mutant.path}:{mutant.line}\n  - {mutant.before}\n  + {mutant.after}", flush=True
            )
    counted = [result for result in results if result["outcome"] != "equivalent"]
    killed = len(counted) - len(survivors)
    share = killed / len(counted) if counted else 1.0
    print(f"{killed} of {len(counted)} killed ({share:.1%}), {len(results) - len(counted)} equivalent")
    if options.json:
        options.json.write_text(json.dumps(results, indent=1))
    return int(share < LEAST_KILLED)


if __name__ == "__main__":
    raise SystemExit(main())
