"""Place and permissions of the folder of a Ray that raydr starts. These tests start no Ray."""

from __future__ import annotations

import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from ray._private.utils import validate_socket_filepath

from raydr.actors import ray_processes
from raydr.errors import OutputError

SOCKET = "session_2026-01-31_12-00-00_123456_4194304/sockets/plasma_store"
"""With the largest process number of Linux."""
SETTINGS = ("RAY_TMPDIR", "TMPDIR", "XDG_RUNTIME_DIR")


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Make a folder with a path of 12 letters, and unset all settings of the folder."""
    for name in SETTINGS:
        monkeypatch.delenv(name, raising=False)
    with tempfile.TemporaryDirectory(prefix="rf", dir="/tmp") as name:
        yield Path(name)


def long(folder: Path, length: int) -> Path:
    """Make a folder inside another, with a path of this many bytes."""
    found = folder / ("n" * (length - len(str(folder)) - 1))
    found.mkdir(exist_ok=True)
    assert len(str(found)) == length
    return found


def made() -> Path:
    folder = ray_processes.new_folder()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    validate_socket_filepath(str(folder / ray_processes.INSIDE / SOCKET))
    folder.rmdir()
    return folder.parent


@pytest.mark.parametrize("setting", SETTINGS[:2])
def test_rays_folder_is_in_the_folder_for_temporary_files(
    short: Path, monkeypatch: pytest.MonkeyPatch, setting: str
) -> None:
    assert made() == Path("/tmp")
    monkeypatch.setenv(setting, str(short))
    assert made() == short


def test_a_path_that_is_too_long_for_sockets_is_skipped(short: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    longest = ray_processes._LONGEST_PLACE
    monkeypatch.setenv("TMPDIR", str(long(short, longest)))
    assert made() == long(short, longest), "of the longest that will do"
    for length in (longest + 1, 40, 90):
        monkeypatch.setenv("TMPDIR", str(long(short, length)))
        assert made() == Path("/tmp")
    with pytest.raises(OSError, match="AF_UNIX"):
        validate_socket_filepath(f"{long(short, longest + 1)}/raydr-12345678/{ray_processes.INSIDE}/{SOCKET}")


def test_a_missing_folder_is_an_error_with_a_remedy(short: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[str] = []

    def full(**options: str) -> str:
        tried.append(options["dir"])
        raise OSError("No space left on device")

    monkeypatch.setattr(tempfile, "mkdtemp", full)
    monkeypatch.setenv("TMPDIR", str(long(short, 60)))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(short))
    with pytest.raises(OutputError, match="Set TMPDIR to such a folder") as refused:
        ray_processes.new_folder()
    assert tried == ["/tmp", str(short)]
    assert refused.value.exit_code == 2


def test_the_logs_or_else_the_folder_are_named(tmp_path: Path) -> None:
    assert ray_processes.logs_in(tmp_path) == tmp_path
    logs = tmp_path / ray_processes.INSIDE / "session_2026-01-31_12-00-00_123456_7" / "logs"
    logs.mkdir(parents=True)
    (tmp_path / ray_processes.INSIDE / "session_latest").symlink_to(logs.parent)
    assert ray_processes.logs_in(tmp_path) == logs
