"""The tellers' processes: each that ends is followed by its heir, which has the same transactional id.

At every other post it is librdkafka that works (teller.py), at the others Kafka's own client (Teller.java).
"""

from __future__ import annotations

import functools
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import attrs

from devtools.jars import classpath, compile_java
from devtools.java import java, java_environment
from devtools.places import REPOSITORY
from testkit.java.java_host import JARS, LOGGING, OPTIONS
from testkit.kills.bank.teller import ENDED_BY_AN_ERROR, ONE_IN, Post

_SOURCE = Path(__file__).parent / "Teller.java"


@attrs.define(eq=False)
class Tellers:
    """The tellers, one for each post. `complain` is called if one ends unexpectedly, or does not end when it should."""

    posts: list[Post]
    log_file: Path
    random: random.Random
    complain: Callable[[str], None]
    left: int = 0
    """The number of tellers that ended by a fatal error."""
    stuck: int = 0
    """The number of tellers that ended by their alarm."""
    fenced: int = 0
    """The number of tellers that were frozen, had an heir, were woken, and ended."""
    _at_work: dict[int, subprocess.Popen[bytes]] = attrs.field(factory=dict)
    _frozen: list[subprocess.Popen[bytes]] = attrs.field(factory=list)
    _zombies: dict[subprocess.Popen[bytes], float] = attrs.field(factory=dict)
    """Those that were woken, and when."""

    def maintain(self) -> None:
        """Sees to it that there is one at each post."""
        for number in range(len(self.posts)):
            process = self._at_work.get(number)
            if process is None or process.poll() is not None:
                if process is not None:
                    self._ended(process)
                self._at_work[number] = self._start(number)

    def kill(self) -> None:
        """Kills one of them, with SIGKILL."""
        self._one().kill()

    def kill_all(self) -> None:
        """Kills all, also those that are frozen. They have no successors before the next `maintain`."""
        processes = [*self._at_work.values(), *self._frozen, *self._zombies]
        for process in processes:
            process.kill()
        for process in processes:
            process.wait()
        self._at_work.clear()
        self._frozen.clear()
        self._zombies.clear()

    def freeze(self) -> None:
        """Freezes one of them, which then gets an heir."""
        process = self._one()
        process.send_signal(signal.SIGSTOP)
        self._frozen.append(process)
        for number in [number for number, it in self._at_work.items() if it is process]:
            del self._at_work[number]

    def hold_all(self) -> None:
        """Stops those at work where they are, until `let_go` or the end."""
        for process in self._at_work.values():
            process.send_signal(signal.SIGSTOP)

    def let_go(self) -> None:
        for process in self._at_work.values():
            process.send_signal(signal.SIGCONT)

    def wake(self) -> None:
        """Wakes all that are frozen. They are zombies, and must be fenced as soon as they try to book an order."""
        for process in self._frozen:
            process.send_signal(signal.SIGCONT)
            self._zombies[process] = time.monotonic()
        self._frozen.clear()

    @property
    def zombies(self) -> int:
        return len(self._zombies)

    def check_zombies(self, longest_s: float) -> None:
        for process, since_s in list(self._zombies.items()):
            if process.poll() is not None:
                self._ended(process)
                self.fenced += process.returncode == ENDED_BY_AN_ERROR
                del self._zombies[process]
            elif time.monotonic() - since_s > longest_s:
                self.complain(f"a teller that has an heir is at work for {longest_s} s")

    def _one(self) -> subprocess.Popen[bytes]:
        return self._at_work[self.random.choice(sorted(self._at_work))]

    def _ended(self, process: subprocess.Popen[bytes]) -> None:
        if process.returncode == ENDED_BY_AN_ERROR:
            self.left += 1
        elif process.returncode == -signal.SIGALRM:
            self.stuck += 1
        elif process.returncode != -signal.SIGKILL:
            self.complain(f"a teller ended with {process.returncode}")

    def _start(self, number: int) -> subprocess.Popen[bytes]:
        post = attrs.evolve(self.posts[number], seed=self.random.getrandbits(32))
        command = _in_java(post) if number % 2 else _in_python(post)
        environment = _java_environment() if number % 2 else None
        with self.log_file.open("ab") as log:
            return subprocess.Popen(
                command, cwd=REPOSITORY, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )


def _in_python(post: Post) -> list[str]:
    return [sys.executable, "-m", "testkit.kills.bank.teller", json.dumps(attrs.asdict(post))]


def _in_java(post: Post) -> list[str]:
    order_partitions = ",".join(map(str, post.order_partitions))
    arguments = [post.bootstrap, post.transactional_id, post.timeout_ms, post.group, post.orders, order_partitions]
    arguments += [post.accounts, post.partitions, post.seed, ENDED_BY_AN_ERROR, ONE_IN]
    log = f"-Dlog4j2.configurationFile={LOGGING}"
    return [str(java()), *OPTIONS, log, "Teller", *map(str, arguments)]


@functools.cache
def _java_environment() -> dict[str, str]:
    jars = classpath(JARS)
    return java_environment() | {"CLASSPATH": os.pathsep.join([str(compile_java(_SOURCE, jars)), jars])}
