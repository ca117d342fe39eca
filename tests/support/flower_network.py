"""A SuperLink and SuperNodes of Flower on this machine, under TLS and with keys of their own."""

from __future__ import annotations

import datetime
import ipaddress
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

PROGRAMS = Path(sys.executable).parent
APP = {
    "LICENSE": "Apache-2.0\n",
    "raydr_app/__init__.py": "",
    "raydr_app/server.py": "from raydr.front.flower_app import app_of_server\n\napp = app_of_server()\n",
    "raydr_app/client.py": "from raydr.front.flower_app import app_of_site\n\napp = app_of_site()\n",
    "pyproject.toml": """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "raydr-app"
version = "1.0.0"
description = "A run of raydr"
license = { file = "LICENSE" }
dependencies = ["flwr>=1.42,<1.43"]

[tool.flwr.app]
publisher = "raydr"
fab-format-version = 1
flwr-version-target = "1.42.0"

[tool.flwr.app.components]
serverapp = "raydr_app.server:app"
clientapp = "raydr_app.client:app"

[tool.flwr.app.config]
scenario = ""
nodes = ""
out = ""
resume = false
""",
}


def certificate(name: str, key: Any, issuer: str, issuer_key: Any, *, days: int = 2) -> x509.Certificate:
    """A certificate for this machine, valid from yesterday; one that a name issues for itself may issue others."""
    now = datetime.datetime.now(datetime.UTC)

    def named(text: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)])

    builder = (
        x509.CertificateBuilder()
        .subject_name(named(name))
        .issuer_name(named(issuer))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=30))
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=name == issuer, path_length=None), critical=True)
    )
    if name != issuer:
        here = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
        builder = builder.add_extension(x509.SubjectAlternativeName([here]), critical=False)
    return builder.sign(issuer_key, SHA256())


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@dataclass
class Network:
    """Processes of one SuperLink and of nodes by site; each ends with its own group."""

    folder: Path
    port: int = field(default_factory=free_port)
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    children: list[psutil.Process] = field(default_factory=list)

    @property
    def environment(self) -> dict[str, str]:
        return os.environ | {
            "PATH": f"{PROGRAMS}:{os.environ['PATH']}",
            "FLWR_HOME": str(self.folder / "home"),
            "FLWR_TELEMETRY_ENABLED": "0",
            "OMP_NUM_THREADS": "1",
        }

    def write_certificates(self, *, days: int = 2) -> None:
        (self.folder / "home").mkdir(parents=True, exist_ok=True)
        root, own = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
        authority = certificate("authority", root, "authority", root)
        (self.folder / "authority.pem").write_bytes(authority.public_bytes(Encoding.PEM))
        served = certificate("server", own, "authority", root, days=days)
        (self.folder / "server.pem").write_bytes(served.public_bytes(Encoding.PEM))
        (self.folder / "server.key").write_bytes(
            own.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        )
        (self.folder / "home" / "config.toml").write_text(
            f'[superlink.here]\naddress = "127.0.0.1:{self.port}"\n'
            f'root-certificates = "{self.folder / "authority.pem"}"\n'
        )

    def start(self, name: str, *command: str) -> None:
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [str(PROGRAMS / command[0]), *command[1:]],
                env=self.environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def start_link(self, *options: str) -> None:
        files = {"certfile": "server.pem", "keyfile": "server.key", "ca-certfile": "authority.pem"}
        secured = [
            text for name, file in files.items() for text in (f"--ssl-{name}", str(self.folder / file))
        ]
        self.start(
            "superlink",
            "flower-superlink",
            *secured,
            *("--host", "127.0.0.1", "--port", str(self.port)),
            "--enable-supernode-auth",
            "--disable-runtime-dependency-installation",
            *options,
        )
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.5)
        raise RuntimeError((self.folder / "superlink.log").read_text())

    def write_key(self, site: str) -> Path:
        """Make a node's key; return the file of its public key."""
        key = ec.generate_private_key(ec.SECP384R1())
        private, public = self.folder / f"{site}.key", self.folder / f"{site}.pub"
        private.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))
        public.write_bytes(key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH))
        return public

    def register(self, site: str) -> str:
        """Make a node's key and register it; return its public key."""
        public = self.write_key(site)
        self.flwr("supernode", "register", str(public), "here")
        return public.read_text()

    def start_node(self, site: str, settings: Path, *options: str) -> None:
        self.start(
            site,
            "flower-supernode",
            *options,
            *("--root-certificates", str(self.folder / "authority.pem")),
            *("--superlink", f"127.0.0.1:{self.port}"),
            *("--auth-supernode-private-key", str(self.folder / f"{site}.key")),
            *("--node-config", f'site="{settings}"'),
            *("--port", str(free_port())),
        )

    def tree(self, name: str) -> list[psutil.Process]:
        """The process of one name and its children, of which some have a session of their own."""
        try:
            top = psutil.Process(self.processes[name].pid)
            return [top, *top.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def send(self, name: str, number: int) -> None:
        """Send a signal to the processes of one name."""
        for process in self.tree(name):
            with suppress(psutil.NoSuchProcess):
                process.send_signal(number)

    def end(self, name: str, number: int = signal.SIGTERM) -> None:
        """End the processes of one name, the children at the end of the block at the latest."""
        self.children += self.tree(name)
        process = self.processes.pop(name)
        if number == signal.SIGKILL:
            for child in self.children:
                with suppress(psutil.NoSuchProcess):
                    child.kill()
        else:
            os.killpg(process.pid, number)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        with_children_gone(process.pid)

    def end_all(self) -> None:
        """End all processes; those that were stopped go on first."""
        for name in list(self.processes):
            self.send(name, signal.SIGCONT)
            self.end(name)
        _, alive = psutil.wait_procs(self.children, 5)
        for process in alive:
            with suppress(psutil.NoSuchProcess):
                process.kill()

    def flwr(self, *arguments: str) -> str:
        done = subprocess.run(
            [str(PROGRAMS / "flwr"), *arguments],
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        assert not done.returncode, done.stdout + done.stderr
        return done.stdout

    def begin(
        self, config: Mapping[str, Path], files: Mapping[str, str] | None = None, *, resume: bool = False
    ) -> None:
        """Start the app of a run with this configuration; ``files`` replace files of the app."""
        for file, content in (APP | dict(files or {})).items():
            path = self.folder / "app" / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
        told = " ".join(f'{name}="{path}"' for name, path in config.items())
        told += " resume=true" if resume else ""
        self.flwr("run", str(self.folder / "app"), "here", "--run-config", told)


def with_children_gone(group: int) -> None:
    """Kill what is left of a process group."""
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        return


@contextmanager
def network(folder: Path, *options: str) -> Iterator[Network]:
    """Certificates and a SuperLink with these options; all processes end with the block."""
    found = Network(folder)
    try:
        found.write_certificates()
        found.start_link(*options)
        yield found
    finally:
        found.end_all()
