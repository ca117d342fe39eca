"""Portable runs: the same bits on other processors, which ``benchmarks.emulated`` emulates."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from places import ROOT
from tiny import tiny

import raydr.portable
from benchmarks.emulated import PROCESSORS, SOURCE, emulating, why_not
from raydr.errors import RaydrError, ScenarioError
from raydr.front import remote
from raydr.front.cli import status
from raydr.portable import VARIABLES, NotPortableError, require_portable
from raydr.scenarios.afterwards.repetition import repeated
from raydr.scenarios.runner import resume, run
from raydr.scenarios.schema.reading import read
from raydr.tune.reading import read_sweep
from raydr.tune.sweeping import sweep

PORTABLE = pytest.mark.skipif(
    not raydr.portable._flags() >= raydr.portable._FLAGS, reason="no x86-64 with AVX2 and FMA"
)
SMALL = tiny() | {
    "method": {"kind": "fed-pca"},
    "metrics": [],
    "runtime": {"federation": "inline", "portable": True},
}
"""A scenario without compiled loops."""
COMMAND = """
import sys
from raydr.front import process
from raydr.portable import require_portable
from raydr.threads import blas_core_types

def work():
    require_portable()
    print("once", sys.argv, blas_core_types())
    return 7

process.main(work)
"""
PROGRAM = """
import hashlib, json, sys
from pathlib import Path
import numba, numpy, torch
from raydr.scenarios.runner import run
from raydr.scenarios.schema.reading import read
data = {"source": "digits", "rows": 300}
content = {"name": "a", "data": data, "clients": {"count": 3}, "method": {"kind": "fed-pca"}, "metrics": []}
content["runtime"] = {"federation": "inline", "portable": sys.argv[2] == "True"}
folder = run(read(content), out=Path(sys.argv[1]), report=False)
numbers = numpy.random.default_rng(0).normal(size=(300, 301))
tensor = torch.from_numpy(numbers.astype("f4"))
results = {
    "map": (folder / "embedding.parquet").read_bytes(),
    "numpy exp": numpy.exp(numbers).tobytes(),
    "numpy argsort": numpy.argsort(numpy.round(numbers.ravel(), 1)).tobytes(),
    "numba": str(numba.core.registry.cpu_target.target_context.codegen().magic_tuple()).encode(),
    "torch sigmoid": torch.sigmoid(tensor).numpy().tobytes(),
    "torch products": (tensor @ tensor.T).numpy().tobytes(),
}
print(json.dumps({name: hashlib.sha256(result).hexdigest() for name, result in results.items()}))
"""


@pytest.fixture
def variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """The variables of a portable process, with libraries that obeyed them and a processor that has everything."""
    for name, value in VARIABLES.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(raydr.portable, "_flags", lambda: {"avx2", "fma", "sse2"})
    monkeypatch.setattr(raydr.portable, "blas_core_types", lambda: ["Haswell", "Haswell"])


@pytest.mark.usefixtures("variables")
@pytest.mark.parametrize("name", VARIABLES)
def test_each_variable_is_required(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    require_portable()
    monkeypatch.setenv(name, "other")
    with pytest.raises(NotPortableError, match="Set them before Python starts") as found:
        require_portable()
    assert all(f"{each}={value!r}" in str(found.value) for each, value in VARIABLES.items())


@pytest.mark.usefixtures("variables")
@pytest.mark.parametrize("missing", ["avx2", "fma"])
def test_a_processor_that_cannot_is_refused(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(raydr.portable, "_flags", lambda: {"avx2", "fma", "sse2"} - {missing})
    with pytest.raises(ScenarioError, match="with AVX2 and FMA") as found:
        require_portable()
    assert not isinstance(found.value, NotPortableError), "to start again would not help"


@pytest.mark.usefixtures("variables")
@pytest.mark.parametrize("found", [["SkylakeX"], ["Haswell", "SkylakeX"], []])
def test_variables_that_came_too_late_are_noticed(found: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(raydr.portable, "blas_core_types", lambda: found)
    with pytest.raises(ScenarioError, match=f"uses {', '.join(found) or 'another BLAS'}") as refused:
        require_portable()
    assert not isinstance(refused.value, NotPortableError)


@PORTABLE
def test_nothing_is_begun_in_a_process_that_is_not_portable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    with pytest.raises(NotPortableError):
        run(read(SMALL), out=out)
    swept = {"name": "swept", "base": SMALL, "space": {"seed": [0, 1]}, "objectives": {"bytes_up": "min"}}
    with pytest.raises(NotPortableError):
        sweep(read_sweep(swept), out=out)
    assert not any(tmp_path.iterdir())
    with monkeypatch.context() as patched:
        patched.setattr("raydr.scenarios.runner.require_portable", lambda: None)
        run(read(SMALL), out=out, report=False)
    with pytest.raises(NotPortableError):
        repeated(out, None, lambda event: None)
    interrupted = tmp_path / "interrupted.incomplete-1"
    interrupted.mkdir()
    (interrupted / "scenario.yaml").write_bytes((out / "scenario.yaml").read_bytes())
    with pytest.raises(RaydrError) as refused:
        resume(interrupted)
    assert isinstance(refused.value, NotPortableError), refused.value


def test_a_gpu_is_not_portable() -> None:
    for device in ("cuda", "auto"):
        with pytest.raises(ScenarioError, match=r"runtime\.portable cannot be kept with runtime\.device"):
            read(tiny() | {"runtime": {"portable": True, "device": device}})


@PORTABLE
def test_a_command_starts_itself_again_with_its_arguments() -> None:
    command = [sys.executable, "-c", COMMAND, "an argument", "--option"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (7, "once ['-c', 'an argument', '--option'] ['Haswell']\n"), done


@PORTABLE
def test_the_command_line_and_a_job_pass_it_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("tiny.yaml").write_text(yaml.safe_dump(SMALL))
    with pytest.raises(NotPortableError):
        status(["run", "tiny.yaml", "--quiet"])
    monkeypatch.setattr("raydr.front.process.main", lambda work: work())
    monkeypatch.setattr(sys, "argv", ["job", "1"])
    monkeypatch.setattr("raydr.front.remote._work", lambda job, submission: require_portable())
    Path("submission.json").write_text("{}")
    with pytest.raises(NotPortableError):
        remote.main()


@PORTABLE
@pytest.mark.slow
@pytest.mark.parametrize("federation", ["inline", "ray"])
def test_a_command_runs_a_portable_scenario(federation: str, tmp_path: Path) -> None:
    """On Ray, each node is checked as well."""
    content = SMALL | {"runtime": {"federation": federation, "portable": True}}
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(content))
    command = [sys.executable, "-m", "raydr", "run", "tiny.yaml", "--out", "out"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\n") == 1, "nothing twice"
    assert json.loads((tmp_path / "out" / "environment.json").read_text())["core_types"] == ["Haswell"]


def test_the_emulated_processors_have_a_definition() -> None:
    assert all(f'{{"{name}", ' in SOURCE.read_text() for name in PROCESSORS)


@PORTABLE
@pytest.mark.skipif(why_not() is not None, reason=str(why_not()))
def test_each_library_has_the_same_bits_on_other_processors(tmp_path: Path) -> None:
    ways = (("skylakex", False), ("zen", False), ("skylakex", True), ("zen", True))
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(tmp_path / f"{name}-{how}"), str(how)],
            env=os.environ | emulating(name, tmp_path) | (dict(VARIABLES) if how else {}),
            cwd=ROOT,
            stdout=subprocess.PIPE,
        )
        for name, how in ways
    ]
    intel, amd, portable_intel, portable_amd = (
        json.loads(process.communicate(timeout=60)[0]) for process in processes
    )
    assert portable_intel == portable_amd
    assert not [name for name in intel if intel[name] == amd[name]], "the emulated processors differ"
