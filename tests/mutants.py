"""Mutation testing: change the code of a room in one place at a time, and report which changes no test notices.

    make mutants ROOM=raydr/privacy              # every mutant of a folder or a file
    make mutants ROOM=raydr/privacy SAMPLE=100   # a random sample of them

Operators and positions are cosmic-ray's. The tests run once on the code as it is, and coverage tells which of them
execute which line; a mutant then meets only the tests that execute the changed line, quick ones first. Tests that start
Ray or a browser, and slow ones, are left out, since other processes do not see the change. A survivor that changes no
behaviour is listed in ``tests/equivalent_mutants.yaml`` with the reason.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import json
import os
import random
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import yaml
from mutant_runs import ROOT, Mutant, Outcome, Reach, measured, run_all

EQUIVALENT = ROOT / "tests" / "equivalent_mutants.yaml"
OPERATORS = re.compile(
    r"core/(AddNot|NumberReplacer|ReplaceAndWithOr|ReplaceOrWithAnd|ReplaceTrueWithFalse|ReplaceFalseWithTrue"
    r"|ReplaceBreakWithContinue|ReplaceContinueWithBreak|ReplaceUnaryOperator_Delete_(Not|USub)|ZeroIterationForLoop"
    r"|ReplaceBinaryOperator_(Add_Sub|Sub_Add|Mul_Div|Div_Mul|Pow_Mul|FloorDiv_Mul|Mod_Mul|BitAnd_BitOr|BitOr_BitAnd)"
    r"|ReplaceComparisonOperator_(Eq_NotEq|NotEq_Eq|Is_IsNot|IsNot_Is|Lt_LtE|LtE_Lt|Gt_GtE|GtE_Gt|Lt_Gt|Gt_Lt|LtE_Gt|GtE_Lt))$"
)
"""Those whose change runs: a float has no bits to shift, so its mutants would die of their type alone."""
LEAST_KILLED = 0.95


def mutants_of(path: Path) -> Iterator[Mutant]:
    """Yield every change of a file that is more than a change of an annotation, a docstring or a decorator."""
    from cosmic_ray.commands.init import _all_work_items
    from cosmic_ray.mutating import mutate_code
    from cosmic_ray.plugins import get_operator

    source = path.read_text()
    original, spans, seen = _behaviour(source), _statements(source), set()
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
        line = spec.start_pos[0]
        yield Mutant(str(path.relative_to(ROOT)), line, spans.get(line, (line, line)), before, after, code)


def _behaviour(source: str) -> str | None:
    """Return the syntax tree without what does nothing when it runs; None where it does not parse."""
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return None
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            node.test = ast.Constant(False)
        for name in ("annotation", "returns"):
            if hasattr(node, name):
                setattr(node, name, None)
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            node.decorator_list = []
    return ast.dump(tree)


def _statements(source: str) -> dict[int, tuple[int, int]]:
    """Return for every line the first and last line of its statement; of a compound one its head alone."""
    spans = {}
    for node in ast.walk(ast.parse(source)):  # outer ones first
        if isinstance(node, ast.stmt):
            body = getattr(node, "body", None)
            last = max(node.lineno, body[0].lineno - 1) if body else node.end_lineno or node.lineno
            spans.update(dict.fromkeys(range(node.lineno, last + 1), (node.lineno, last)))
    return spans


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


def main() -> int:
    """Run the mutants of a room and print those that survive."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("room", nargs="+", type=Path, help="files or folders, such as raydr/privacy")
    parser.add_argument(
        "--sample", type=int, default=0, help="so many mutants, drawn at random; all without it"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=20.0, help="of tests that a mutant meets at most")
    parser.add_argument("--tests", nargs="*", help="test files instead of those found by their imports")
    parser.add_argument("--only", type=Path, help="a file that --json wrote: its survivors alone")
    parser.add_argument("--cache", type=Path, default=ROOT / ".mutants", help="folder for what tests execute")
    parser.add_argument("--json", type=Path, help="file for the results")
    options = parser.parse_args()

    os.environ.update(OPENBLAS_NUM_THREADS="1", OMP_NUM_THREADS="1", NUMBA_NUM_THREADS="1")
    sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "tests" / "support")]
    os.chdir(ROOT)
    files = [
        file for room in options.room for file in (sorted(room.rglob("*.py")) if room.is_dir() else [room])
    ]
    mutants = [mutant for file in files for mutant in mutants_of(file.resolve())]
    if options.only:
        before = json.loads(options.only.read_text())
        names = {mutant["name"] for mutant in before if mutant["outcome"] in ("survived", "not run")}
        mutants = [mutant for mutant in mutants if mutant.name in names]
    if options.sample:
        mutants = random.Random(options.seed).sample(mutants, min(options.sample, len(mutants)))
    near = {path: options.tests or tests_of(ROOT / path) for path in {mutant.path for mutant in mutants}}
    tests = sorted({test for found in near.values() for test in found})
    print(f"{len(mutants)} mutants of {len(near)} files, {len(tests)} test files", flush=True)

    listed = yaml.safe_load(EQUIVALENT.read_text()) or {}
    known = {f"{path}: {change}" for path, changes in listed.items() for change in changes}

    def told(mutant: Mutant, outcome: Outcome) -> None:
        if outcome in (Outcome.SURVIVED, Outcome.NOT_RUN):
            if mutant.name in known:
                outcome = Outcome.EQUIVALENT
            else:
                print(
                    f"{outcome} {mutant.path}:{mutant.line}\n  - {mutant.before}\n  + {mutant.after}",
                    flush=True,
                )
        with ended.open("a") as file:  # several processes write there
            file.write(json.dumps({"name": mutant.name, "line": mutant.line, "outcome": outcome}) + "\n")

    with tempfile.TemporaryDirectory(prefix="mutants-") as place:
        scratch, changed = Path(place), [ROOT / path for path in near]
        ended = scratch / "ended"
        reach = Reach(measured(tests, changed, options.jobs, scratch, options.cache), near, options.seconds)
        run_all(mutants, tests, reach, options.jobs, scratch, told)
        results = [json.loads(line) for line in ended.read_text().splitlines()]
    stale = {name for name in known if name.split(":")[0] in near} - {mutant.name for mutant in mutants}
    for name in sorted(stale) if not (options.sample or options.only) else ():
        print(f"listed as equivalent, and no mutant: {name}")
    counts = {outcome: sum(result["outcome"] == outcome for result in results) for outcome in Outcome}
    killed = counts[Outcome.KILLED] + counts[Outcome.TIMED_OUT]
    of = len(results) - counts[Outcome.EQUIVALENT]
    print(", ".join(f"{count} {outcome}" for outcome, count in counts.items() if count))
    print(f"{killed} of {of} killed ({killed / max(of, 1):.1%})")
    if options.json:
        options.json.write_text(json.dumps(results, indent=1))
    return int(killed < LEAST_KILLED * of)


if __name__ == "__main__":
    raise SystemExit(main())
