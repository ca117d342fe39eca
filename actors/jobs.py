"""Jobs on a remote cluster: send, follow, stop and fetch them through its dashboard, with Ray's Jobs API."""

from __future__ import annotations

import logging
import os
import re
import shlex
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import AuthenticationError
from ray.job_submission import JobSubmissionClient

from raydr.actors.job_artifacts import MANIFEST, Manifest, place_of, unpacked
from raydr.actors.ray_private import connect_job_client
from raydr.actors.shipping import Package
from raydr.errors import OutputError, RunError

ANSWER_S = 30.0
"""Seconds in which a dashboard must answer."""
_PACKAGE_S = 600.0
"""Seconds to send an archive or to receive a part."""
SILENCE_S = 60.0
"""Seconds for which a dashboard may stop answering while a job is followed."""
_TRIES = 3
_AGENT_S = 60.0
"""Seconds in which a newly started head must be able to take a job."""
_ENTRY = "python start.py"
_NAME, _KIND, _VERSION = "raydr_name", "raydr_kind", "raydr_version"
"""Metadata keys that identify raydr's jobs."""


class UnreachableError(OutputError):
    """No answer from an address at the moment."""


@dataclass(kw_only=True, frozen=True)
class Job:
    """A raydr job as the cluster describes it.

    Attributes
    ----------
    id : str
        Id for following, stopping and fetching it.
    name : str
        Name of its scenario or sweep.
    kind : {"run", "sweep"}
    version : str
        Version of raydr that sent it.
    state : {"PENDING", "RUNNING", "STOPPED", "SUCCEEDED", "FAILED"}
    started, ended : float or None
        Seconds since 1970.
    node : str or None
        Id of the node where its driver ran.
    message : str
        Message of the cluster about it.
    exit_code : int or None
        Exit code of its driver; negative or None if it was killed.
    """

    id: str
    name: str
    kind: str
    version: str
    state: str
    started: float | None
    ended: float | None
    node: str | None
    message: str
    exit_code: int | None

    @property
    def over(self) -> bool:
        """Whether the job has ended."""
        return self.state in ("STOPPED", "SUCCEEDED", "FAILED")


class Head(JobSubmissionClient):  # type: ignore[misc]
    """The dashboard of a cluster's head: Ray's client, with time-outs and raydr's own errors.

    Parameters
    ----------
    address : str
        http://HOST:PORT, or https:// if a proxy provides TLS. ``REQUESTS_CA_BUNDLE`` names a file of trusted
        certificate authorities.

    Raises
    ------
    OutputError
        If there is no answer or no dashboard, the token is refused, or its Ray is another release.
    RunError
        If raydr was not tested with the release here.
    """

    def __init__(self, address: str) -> None:
        if not address.startswith(("http://", "https://")):
            raise OutputError(
                f"{address!r} is not the address of a Ray dashboard: expected http://HOST:8265, as `ray start"
                " --head` prints it."
            )
        try:
            import aiohttp  # noqa: F401
        except ImportError:
            raise OutputError(
                "The part of Ray that sends jobs is not installed here. Run `pip install -c constraints.txt"
                " '.[cluster]'` in raydr's folder, or `pip install 'ray[default]'`."
            ) from None
        logging.getLogger("ray.dashboard").setLevel(logging.ERROR)
        self.url = address.rstrip("/")
        connect_job_client(self, self.url, os.environ.get("REQUESTS_CA_BUNDLE") or True)
        there = self._version()
        if there != ray.__version__:
            raise OutputError(
                f"The cluster at {self.url} runs Ray {there}, and this machine runs Ray"
                f" {ray.__version__}. Two releases may not understand each other, and results may differ. Install"
                f" the same release on both sides (`pip install 'ray[default]=={there}'` here,"
                f" or {ray.__version__} there)."
            )

    def _version(self) -> str:
        answer = self._do_request("GET", "/api/version")
        try:
            return str(answer.json()["ray_version"])
        except (ValueError, KeyError, TypeError):
            raise OutputError(
                f"The service at {self.url} is not a Ray dashboard (status {answer.status_code}). Use the dashboard"
                " address that `ray start --head` prints (usually port 8265, not 6379)."
            ) from None

    def _do_request(self, method: str, endpoint: str, **options: Any) -> Any:
        """Send a request; raise an error in one paragraph if there is no answer."""
        import requests

        try:
            return super()._do_request(method, endpoint, **{"timeout": ANSWER_S, **options})
        except AuthenticationError as error:
            refused = str(error).startswith("Authentication failed")
            raise OutputError(
                f"The cluster at {self.url} refused the token of this process. Set RAY_AUTH_TOKEN (or the file in"
                " RAY_AUTH_TOKEN_PATH) to the token that the cluster was started with."
                if refused
                else f"The cluster at {self.url} requires a token, and this process has none. Set"
                " RAY_AUTH_MODE=token and RAY_AUTH_TOKEN (or RAY_AUTH_TOKEN_PATH) to the values that the"
                " cluster was started with."
            ) from None
        except requests.exceptions.SSLError as error:
            raise OutputError(
                f"The certificate of {self.url} is not trusted ({_reason(error)}). Set REQUESTS_CA_BUNDLE to the"
                " file of its certificate authority, or correct the address."
            ) from None
        except requests.exceptions.Timeout:
            raise UnreachableError(_no_answer(self.url, "no answer in time")) from None
        except requests.exceptions.RequestException as error:
            raise UnreachableError(_no_answer(self.url, _reason(error))) from None

    def _raise_error(self, response: Any) -> None:
        raise RunError(
            f"The cluster at {self.url} could not complete the request (status {response.status_code}:"
            f" {_last_line(response.text)}). Check the dashboard's logs on its head."
        )

    def send(self, job: str, package: Package, *, name: str, kind: str, version: str) -> None:
        """Upload a package, unless the cluster has it, and start a job with it."""
        place = f"/api/packages/gcs/{package.name}"
        if self._do_request("GET", place).status_code != 200:
            answer = self._do_request("PUT", place, data=package.content, timeout=_PACKAGE_S)
            if answer.status_code != 200:
                self._raise_error(answer)
        self._started(
            entrypoint=f"{_ENTRY} {shlex.quote(job)}",
            submission_id=job,
            runtime_env={"working_dir": f"gcs://{package.name}"},
            metadata={_NAME: name, _KIND: kind, _VERSION: version},
        )

    def _started(self, **job: Any) -> None:
        """Start a job; a newly started head may take a while to find an agent for it."""
        patience = time.monotonic() + _AGENT_S
        while True:
            try:
                self.submit_job(**job)
                return
            except RunError as error:
                if "No available agent" not in str(error) or time.monotonic() > patience:
                    raise
                time.sleep(1.0)

    def jobs(self) -> list[Job]:
        """Return raydr's jobs, latest first."""
        found = [_job(details) for details in self.list_jobs() if _NAME in (details.metadata or {})]
        return sorted(found, key=lambda job: job.started or 0.0, reverse=True)

    def job(self, job: str) -> Job:
        """Return one raydr job.

        Raises
        ------
        OutputError
            If the cluster has no job with that id.
        """
        answer = self._do_request("GET", f"/api/jobs/{job}")
        content = answer.json() if answer.status_code == 200 else None
        if answer.status_code == 404 or (content and _NAME not in (content.get("metadata") or {})):
            raise OutputError(
                f"The cluster at {self.url} has no raydr job {job!r}. `raydr jobs --address {self.url}` lists its"
                " jobs. A restarted cluster does not keep earlier jobs."
            )
        if content is None:
            self._raise_error(answer)
        return _job(self.get_job_info(job))

    def stop(self, job: str) -> Job:
        """Stop a job, and return it once it has ended."""
        self.stop_job(job)
        deadline = time.monotonic() + ANSWER_S
        while not (there := self.job(job)).over and time.monotonic() < deadline:
            time.sleep(0.2)
        return there

    def follow(self, job: str, say: Callable[[str], None]) -> Job:
        """Pass on a job's log, line by line, until the job has ended, and return the job.

        Raises
        ------
        RunError
            If the cluster no longer answers.
        """
        heard, rest, silent_since = 0, "", None
        while True:
            try:
                there = self.job(job)
                for text in _new(self._tail(job), heard):
                    heard += len(text)
                    *lines, rest = (rest + text).split("\n")
                    for line in lines:
                        say(line)
                    silent_since = None
                if there.over:
                    if rest:
                        say(rest)
                    return there
                silent_since = None
            except UnreachableError as error:
                silent_since = silent_since or time.monotonic()
                if time.monotonic() - silent_since > SILENCE_S:
                    raise RunError(
                        f"The cluster at {self.url} has not answered for {SILENCE_S:.0f} s: its head or the"
                        f" connection is down. If it comes back, `raydr jobs follow {job} --address {self.url}`"
                        " continues. A restarted head does not keep the job."
                    ) from error
                time.sleep(1.0)

    def _tail(self, job: str) -> Iterator[str]:
        """Yield pieces of a job's log from its beginning, until the job or the connection ends."""
        import asyncio

        import aiohttp

        loop = asyncio.new_event_loop()
        pieces = self.tail_job_logs(job)
        try:
            waiting = loop.create_task(anext(pieces))
            while True:
                done, _ = loop.run_until_complete(asyncio.wait([waiting], timeout=ANSWER_S))
                if not done:
                    self.job(job)  # raises UnreachableError if the other end has gone silently
                    continue
                try:
                    yield waiting.result()
                except StopAsyncIteration:
                    return
                except (aiohttp.ClientError, RuntimeError, OSError) as error:
                    raise UnreachableError(_no_answer(self.url, _reason(error))) from None
                waiting = loop.create_task(anext(pieces))
        finally:
            for task in asyncio.all_tasks(loop):
                task.cancel()
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.close()

    def fetch(self, job: Job, folder: Path) -> None:
        """Fetch a job's folder into an existing folder, and verify it.

        Raises
        ------
        OutputError
            If it cannot be written here.
        RunError
            If it no longer exists, or does not arrive intact.
        """
        try:
            manifest = Manifest.from_json(b"".join(self._kept(job, MANIFEST)))
            parts = (self._part(job, number) for number in range(manifest.parts))
            unpacked(parts, manifest, folder)
        except ValueError as error:
            raise RunError(
                f"The folder of job {job.id} did not arrive intact ({_last_line(str(error))}). Fetch it again with"
                f" `raydr jobs fetch {job.id} --address {self.url}`."
            ) from error
        except OSError as error:
            if isinstance(error, OutputError):
                raise
            raise OutputError(
                f"Cannot write the folder of job {job.id} ({error.strerror or error}). Free disk space or choose"
                f" another folder, and fetch it again with `raydr jobs fetch {job.id} --address {self.url} --out"
                " DIR`."
            ) from error

    def _part(self, job: Job, number: int) -> bytes:
        for tries_left in reversed(range(_TRIES)):
            try:
                return b"".join(self._kept(job, str(number)))
            except UnreachableError:
                if not tries_left:
                    raise
        raise AssertionError

    def _kept(self, job: Job, name: str) -> Iterator[bytes]:
        """Yield the content of a file that a job kept, in pieces."""
        import requests

        params: Mapping[str, Any] = {
            "node_id": job.node,
            "filename": f"{place_of(job.id)}/{name}",
            "lines": -1,
            "timeout": int(_PACKAGE_S),
        }
        answer = self._do_request("GET", "/api/v0/logs/file", params=params, stream=True, timeout=_PACKAGE_S)
        with answer:
            if answer.status_code != 200:
                raise RunError(
                    f"The cluster at {self.url} does not have the folder of job {job.id} (status"
                    f" {answer.status_code}). A job that did not finish leaves no folder, and files of an earlier"
                    " Ray session are not served. Send it again with `raydr submit`."
                )
            try:
                yield from answer.iter_content(2**20)
            except requests.exceptions.RequestException as error:
                raise UnreachableError(_no_answer(self.url, _reason(error))) from None


def _job(details: Any) -> Job:
    metadata = details.metadata or {}
    return Job(
        id=details.submission_id or details.job_id,
        name=metadata.get(_NAME, ""),
        kind=metadata.get(_KIND, "run"),
        version=metadata.get(_VERSION, ""),
        state=str(details.status),
        started=details.start_time / 1000 if details.start_time else None,
        ended=details.end_time / 1000 if details.end_time else None,
        node=details.driver_node_id,
        message=details.message or "",
        exit_code=details.driver_exit_code,
    )


def _new(pieces: Iterator[str], heard: int) -> Iterator[str]:
    """Yield the part of a text that has not been seen, when the text is read again from its beginning."""
    passed = 0
    for piece in pieces:
        new = piece[max(0, heard - passed) :]
        passed += len(piece)
        if new:
            yield new


def _no_answer(url: str, reason: str) -> str:
    return (
        f"No Ray dashboard answers at {url} ({reason}). Correct --address, or check that the head is running, has"
        " ray[default] installed, and was started with --dashboard-host if other machines must reach it."
    )


def _reason(error: BaseException) -> str:
    """Return the innermost cause of an error, in a few words."""
    inner: Any = error
    while True:
        deeper = getattr(inner, "reason", None) or (inner.args[0] if inner.args else None)
        if not isinstance(deeper, BaseException):
            break
        inner = deeper
    text = getattr(inner, "strerror", None) or str(inner) or type(inner).__name__
    return re.sub(r"^\[Errno \d+\] ", "", _last_line(text.rpartition(": ")[2])).lower()


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:300].rstrip(".") if lines else "no reason given"
