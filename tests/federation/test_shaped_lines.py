"""The time of messages on real lines: network namespaces whose links tc holds to a bandwidth."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass

import pytest

from raydr.federation.network import Line, Network

SITE = """
import socket, sys, time
latency = float(sys.argv[1])
with socket.create_server(("0.0.0.0", 4000)) as server:
    print("ready", flush=True)
    line, _ = server.accept()
    line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with line, line.makefile("rb") as incoming:
        while head := incoming.read(16):
            down, up = int.from_bytes(head[:8], "little"), int.from_bytes(head[8:], "little")
            incoming.read(down - 16)
            time.sleep(latency)
            line.sendall(bytes(up))
"""
"""A site that answers after the latency, which the kernel's shaper of rates does not add."""


def shell(command: str) -> None:
    subprocess.run(command.split(), check=True, capture_output=True)


@dataclass
class Site:
    """A site in a network namespace of its own, and the server's connection to it."""

    number: int
    line: Line

    def __enter__(self) -> Site:
        name, prefix = f"ry{os.getpid() % 10_000}{self.number}", f"10.213.{self.number}"
        self.stack = ExitStack()
        try:
            shell(f"ip netns add {name}")
            self.stack.callback(shell, f"ip netns del {name}")
            shell(f"ip link add {name}a type veth peer name {name}b netns {name}")
            shell(f"ip addr add {prefix}.1/30 dev {name}a")
            inside = f"ip netns exec {name}"
            shell(f"{inside} ip addr add {prefix}.2/30 dev {name}b")
            shell(f"ip link set {name}a up")
            shell(f"{inside} ip link set {name}b up")
            shaped = "root tbf burst 4kb latency 2s rate"
            shell(f"tc qdisc add dev {name}a {shaped} {self.line.down_mbit_s}mbit")
            shell(f"{inside} tc qdisc add dev {name}b {shaped} {self.line.up_mbit_s}mbit")
            process = subprocess.Popen(
                [*inside.split(), sys.executable, "-c", SITE, str(self.line.latency_ms / 1000)],
                stdout=subprocess.PIPE,
            )
            self.stack.callback(process.wait)
            self.stack.callback(process.kill)
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            self.socket = self.stack.enter_context(socket.create_connection((f"{prefix}.2", 4000)))
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except BaseException:
            self.stack.close()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self.stack.close()

    def call(self, down: int, up: int) -> None:
        head = down.to_bytes(8, "little") + up.to_bytes(8, "little")
        self.socket.sendall(head + bytes(down - 16))
        while up:
            up -= len(self.socket.recv(min(up, 1 << 16)))


LINES = (Line(up_mbit_s=10, down_mbit_s=10, latency_ms=50), Line(up_mbit_s=2, down_mbit_s=20, latency_ms=10))


@pytest.fixture(scope="module")
def sites() -> Iterator[list[Site]]:
    with ExitStack() as stack:
        try:
            found = [stack.enter_context(Site(number, line)) for number, line in enumerate(LINES)]
        except (OSError, subprocess.CalledProcessError) as error:
            pytest.skip(f"no network namespaces with tc here: {error}")
        yield found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("down", "up", "calls"),
    [
        ({0: 400, 1: 400}, {0: 800, 1: 800}, 20),
        ({0: 500_000, 1: 500_000}, {0: 20_000, 1: 20_000}, 3),
        ({0: 20_000, 1: 20_000}, {0: 500_000, 1: 500_000}, 2),
        ({0: 60_000, 1: 60_000}, {0: 60_000, 1: 60_000}, 10),
        ({0: 1_000_000, 1: 20_000}, {0: 1_000_000, 1: 20_000}, 2),
    ],
)
def test_calls_on_shaped_lines_take_what_the_account_says(
    sites: list[Site], down: dict[int, int], up: dict[int, int], calls: int
) -> None:
    counted = calls * Network(LINES).seconds(down, up)
    with ThreadPoolExecutor(len(sites)) as pool:
        begun = time.perf_counter()
        for _ in range(calls):
            list(pool.map(lambda site: site.call(down[site.number], up[site.number]), sites))
        took = time.perf_counter() - begun
    print(f"{counted:.3f} s counted, {took:.3f} s measured, {took / counted:.3f}")
    # Headers of packets add 4.5 %, and processes that share cores wake up late.
    assert 0.97 * counted < took < 1.2 * counted + 0.05 * calls
