"""Members of a group as a test sees them: what they should own together, and one in a process that can be killed."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from devtools.places import REPOSITORY


class MemberProcess:
    """A member that another process keeps alive (member.py)."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._reports: list[list[int]] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def partitions(self) -> list[int]:
        """The partitions in its last report."""
        return self._reports[-1] if self._reports else []

    def owns(self, count: int) -> bool:
        assert self._process.poll() is None, f"the member ended with {self._process.returncode}"
        return len(self.partitions) == count

    def kill(self) -> None:
        """Kills the process, which sends nothing to the broker."""
        self._process.kill()
        self._process.wait()
        self._reader.join()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._reports.append(json.loads(line))


@contextmanager
def member_process(client: str, bootstrap: str, group: str, topic: str, **config: Any) -> Iterator[MemberProcess]:
    wanted = {"client": client, "bootstrap": bootstrap, "group": group, "topic": topic, "config": config}
    command = [sys.executable, "-m", "testkit.clients.member", json.dumps(wanted)]
    with subprocess.Popen(
        command, cwd=REPOSITORY, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
    ) as process:
        member = MemberProcess(process)
        try:
            yield member
        finally:
            member.kill()


def shared_out(owned: Sequence[Iterable[int]], partitions: int, *, most: int) -> bool:
    """True if each of so many partitions has one owner, and each owner between one and `most` of them."""
    lists = [list(one) for one in owned]
    everything = sorted(partition for one in lists for partition in one)
    return everything == list(range(partitions)) and all(1 <= len(one) <= most for one in lists)
