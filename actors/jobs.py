"""Jobs on a cluster elsewhere: sent, followed, stopped and fetched through its dashboard, by Ray's Jobs API."""

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
from ray.dashboard.modules.dashboard_sdk import SubmissionClient
from ray.exceptions import AuthenticationError
from ray.job_submission import JobSubmissionClient

from raydr.actors.job_artifacts import MANIFEST, Manifest, place_of, unpacked
from raydr.actors.shipping import Package
from raydr.errors import OutputError, RunError

ANSWER_S = 30.0
"""Seconds in which a dashboard must answer."""
_PACKAGE_S = 600.0
"""The same, for an archive on its way to it or a part on its way back."""
SILENCE_S = 60.0
"""Seconds for which a dashboard that answered before may be away while a job is followed."""
_TRIES = 3
_AGENT_S = 60.0
"""Seconds in which a head that has just begun must be able to take a job."""
_ENTRY = "python start.py"
_NAME, _KIND, _VERSION = "raydr_name", "raydr_kind", "raydr_version"
"""In a job's metadata, by which raydr's are known among others."""


class UnreachableError(OutputError):
    """Nobody answers at an address, for now."""


@dataclass(kw_only=True, frozen=True)
class Job:
    """A job of raydr's as its cluster has it.

    Attributes
    ----------
    id : str
        By which it is followed, stopped and fetched.
    name : str
        Of its scenario or sweep.
    kind : {"run", "sweep"}
    version : str
        Of the raydr that sent it.
    state : {"PENDING", "RUNNING", "STOPPED", "SUCCEEDED", "FAILED"}
    started, ended : float or None
        Seconds since 1970.
    node : str or None
        Id of the node that its driver ran on.
    message : str
        What the cluster has to say of it.
    exit_code : int or None
        Of its driver; negative or none where it was killed.
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
        """Whether nothing more will come of it."""
        return self.state in ("STOPPED", "SUCCEEDED", "FAILED")


class Head(JobSubmissionClient):  # type: ignore[misc]
    """The dashboard of a cluster's head, heard from once: Ray's client, with patience, and errors of raydr's own.

    Parameters
    ----------
    address : str
        http://HOST:PORT, or https:// where something in between speaks TLS. ``REQUESTS_CA_BUNDLE`` names a file of
        authorities to trust.

    Raises
    ------
    OutputError
        If nobody answers there, or something else does, or the token is refused, or its Ray is another release.
    """

    def __init__(self, address: str) -> None:
        if not address.startswith(("http://", "https://")):
            raise OutputError(
                f"{address!r} is no address of a Ray dashboard: give http://HOST:8265, as `ray start --head` named it."
            )
        try:
            import aiohttp  # noqa: F401
        except ImportError:
            raise OutputError(
                "Jobs are sent by a part of Ray that is not installed here: `pip install -c"
                " constraints.txt '.[cluster]'` in raydr's folder, or `pip install 'ray[default]'`."
            ) from None
        logging.getLogger("ray.dashboard").setLevel(logging.ERROR)
        self.url = address.rstrip("/")
        # Not Ray's own __init__, for which RAY_ADDRESS comes before what is asked for.
        self._client_ray_version = ray.__version__
        SubmissionClient.__init__(self, address=self.url, verify=os.environ.get("REQUESTS_CA_BUNDLE") or True)
        self._server_ray_version = self._version()
        if self._server_ray_version != ray.__version__:
            raise OutputError(
                f"The cluster at {self.url} runs Ray {self._server_ray_version}, and this is {ray.__version__}: what"
                " one writes the other need not understand, and bits may differ. Install the same release on both sides"
                f" (`pip install 'ray[default]=={self._server_ray_version}'` here, or {ray.__version__} there)."
            )

    def _version(self) -> str:
        answer = self._do_request("GET", "/api/version")
        try:
            return str(answer.json()["ray_version"])
        except (ValueError, KeyError, TypeError):
            raise OutputError(
                f"What answers at {self.url} is no Ray dashboard (status {answer.status_code}): give the address that"
                " `ray start --head` named for it (port 8265 as a rule, not 6379)."
            ) from None

    def _do_request(self, method: str, endpoint: str, **options: Any) -> Any:
        """Ask, and say in one paragraph why there is no answer."""
        import requests

        try:
            return super()._do_request(method, endpoint, **{"timeout": ANSWER_S, **options})
        except AuthenticationError as error:
            refused = str(error).startswith("Authentication failed")
            raise OutputError(
                f"The cluster at {self.url} refuses the token of this process: RAY_AUTH_TOKEN (or the file that"
                " RAY_AUTH_TOKEN_PATH names) must be as it was where the cluster was started."
                if refused
                else f"The cluster at {self.url} asks for a token that this process does not have: set"
                " RAY_AUTH_MODE=token and RAY_AUTH_TOKEN (or RAY_AUTH_TOKEN_PATH) as they were where it was started."
            ) from None
        except requests.exceptions.SSLError as error:
            raise OutputError(
                f"The certificate at {self.url} is not trusted ({_reason(error)}): name the file of its authority in"
                " REQUESTS_CA_BUNDLE, or correct the address."
            ) from None
        except requests.exceptions.Timeout:
            raise UnreachableError(_nobody(self.url, "no answer in time")) from None
        except requests.exceptions.RequestException as error:
            raise UnreachableError(_nobody(self.url, _reason(error))) from None

    def _raise_error(self, response: Any) -> None:
        raise RunError(
            f"The cluster at {self.url} could not do what it was asked (status {response.status_code}:"
            f" {_last_line(response.text)}). Look into the dashboard's logs at its head."
        )

    def send(self, job: str, package: Package, *, name: str, kind: str, version: str) -> None:
        """Send a package, unless the cluster has it, and start a job with it."""
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
        """Start a job; a head that began just now may take a while to find who runs it."""
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
        """Return raydr's jobs, the latest first."""
        found = [_job(details) for details in self.list_jobs() if _NAME in (details.metadata or {})]
        return sorted(found, key=lambda job: job.started or 0.0, reverse=True)

    def job(self, job: str) -> Job:
        """Return one of raydr's jobs.

        Raises
        ------
        OutputError
            If the cluster has none of that id.
        """
        answer = self._do_request("GET", f"/api/jobs/{job}")
        content = answer.json() if answer.status_code == 200 else None
        if answer.status_code == 404 or (content and _NAME not in (content.get("metadata") or {})):
            raise OutputError(
                f"The cluster at {self.url} has no job {job!r} of raydr: `raydr jobs --address {self.url}` lists them."
                " A cluster that was started anew has forgotten those from before."
            )
        if content is None:
            self._raise_error(answer)
        return _job(self.get_job_info(job))

    def stop(self, job: str) -> Job:
        """Stop a job, and return it once it is over."""
        self.stop_job(job)
        deadline = time.monotonic() + ANSWER_S
        while not (there := self.job(job)).over and time.monotonic() < deadline:
            time.sleep(0.2)
        return there

    def follow(self, job: str, say: Callable[[str], None]) -> Job:
        """Pass a job's log on, line by line, until the job is over, and return it.

        Raises
        ------
        RunError
            If the cluster is gone.
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
                        f"The cluster at {self.url} has not answered for {SILENCE_S:.0f} s: its head is gone, or the"
                        f" way to it. If it comes back, `raydr jobs follow {job} --address {self.url}` goes on; a head"
                        " that was started anew has forgotten the job."
                    ) from error
                time.sleep(1.0)

    def _tail(self, job: str) -> Iterator[str]:
        """Pieces of a job's log from its beginning, until the job is over or the connection."""
        import asyncio

        import aiohttp

        loop = asyncio.new_event_loop()
        pieces = self.tail_job_logs(job)
        try:
            waiting = loop.create_task(anext(pieces))
            while True:
                done, _ = loop.run_until_complete(asyncio.wait([waiting], timeout=ANSWER_S))
                if not done:
                    self.job(job)  # UnreachableError if the other end is gone without a word
                    continue
                try:
                    yield waiting.result()
                except StopAsyncIteration:
                    return
                except (aiohttp.ClientError, RuntimeError, OSError) as error:
                    raise UnreachableError(_nobody(self.url, _reason(error))) from None
                waiting = loop.create_task(anext(pieces))
        finally:
            for task in asyncio.all_tasks(loop):
                task.cancel()
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.close()

    def fetch(self, job: Job, folder: Path) -> None:
        """Bring a job's folder back into a folder that is there, and verify it.

        Raises
        ------
        OutputError
            If it cannot be written here.
        RunError
            If it is not there any more, or does not arrive as it was.
        """
        try:
            manifest = Manifest.from_json(b"".join(self._kept(job, MANIFEST)))
            parts = (self._part(job, number) for number in range(manifest.parts))
            unpacked(parts, manifest, folder)
        except ValueError as error:
            raise RunError(
                f"What came back of job {job.id} is not what it left ({_last_line(str(error))}): fetch it again with"
                f" `raydr jobs fetch {job.id} --address {self.url}`."
            ) from error
        except OSError as error:
            if isinstance(error, OutputError):
                raise
            raise OutputError(
                f"What came back of job {job.id} cannot be written ({error.strerror or error}): free the place, or name"
                f" another, and fetch it again with `raydr jobs fetch {job.id} --address {self.url} --out DIR`."
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
        """Content of a file that a job kept, in pieces."""
        import requests

        asked: Mapping[str, Any] = {
            "node_id": job.node,
            "filename": f"{place_of(job.id)}/{name}",
            "lines": -1,
            "timeout": int(_PACKAGE_S),
        }
        answer = self._do_request("GET", "/api/v0/logs/file", params=asked, stream=True, timeout=_PACKAGE_S)
        with answer:
            if answer.status_code != 200:
                raise RunError(
                    f"The cluster at {self.url} has not kept what job {job.id} left (status {answer.status_code}): one"
                    " that did not end whole leaves nothing, and the logs of an earlier session of Ray are not served."
                    " Send it again with `raydr submit`."
                )
            try:
                yield from answer.iter_content(2**20)
            except requests.exceptions.RequestException as error:
                raise UnreachableError(_nobody(self.url, _reason(error))) from None


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
    """What has not been heard of a text that is told from its beginning once more."""
    passed = 0
    for piece in pieces:
        new = piece[max(0, heard - passed) :]
        passed += len(piece)
        if new:
            yield new


def _nobody(url: str, reason: str) -> str:
    return (
        f"No Ray dashboard answers at {url} ({reason}): correct --address, or see whether the head runs and was started"
        " with ray[default] installed and --dashboard-host where others are to reach it."
    )


def _reason(error: BaseException) -> str:
    """The innermost of what went wrong, in few words."""
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
