"""A `kwire serve` of our own, watched from outside: its memory, its log, its log dir."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 30.0
_ADDRESS = re.compile(r"listening on (\S+?),? ")


class BrokerProcess:
    """A broker in a process. It runs in `folder`, with its data in `data_dir` and its log in `folder`/log.

    `port` is None if the settings have `listeners`. `descriptors`: the most it may have open. `kwire`: the module that
    is run, and what it is given before `serve`.
    """

    def __init__(
        self,
        folder: Path,
        settings: Sequence[str] = (),
        *,
        data_dir: Path | None = None,
        port: int | None = 0,
        descriptors: int | None = None,
        kwire: Sequence[str] = ("kwire",),
    ) -> None:
        self.data_dir = data_dir or folder / "data"
        self._log = folder / "log"
        command = [sys.executable, "-m", *kwire, "serve", "--data-dir", str(self.data_dir)]
        if port is not None:
            command += ["--listen", f"127.0.0.1:{port}"]
        for setting in settings:
            command += ["--set", setting]
        if descriptors is not None:
            command = ["sh", "-c", 'ulimit -n "$0" && exec "$@"', str(descriptors), *command]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, cwd=folder)
        assert self._process.stdout is not None
        line = self._process.stdout.readline().decode()
        found = _ADDRESS.search(line)
        if found is None:
            self._process.kill()
            self._process.wait()
            self._process.stdout.close()
            raise AssertionError(f"no broker: {line!r} {self.log()}")
        self.address = found[1]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def send(self, number: signal.Signals) -> None:
        """Nothing happens if it has ended."""
        self._process.send_signal(number)

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> int:
        """SIGTERM; the exit status."""
        assert self._process.stdout is not None
        if self.is_running:
            self._process.send_signal(signal.SIGTERM)
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise
        finally:
            self._process.stdout.close()

    def kill(self) -> None:
        """SIGKILL."""
        assert self._process.stdout is not None
        self._process.kill()
        self._process.wait(STOP_TIMEOUT_S)
        self._process.stdout.close()

    def log(self) -> str:
        return self._log.read_text(encoding="utf-8")

    def bugs(self) -> list[str]:
        """The different tracebacks in the log."""
        return bugs_in(self.log())

    def resident_bytes(self) -> int:
        return self._status("VmRSS")

    def peak_resident_bytes(self) -> int:
        return self._status("VmHWM")

    def open_descriptors(self) -> int:
        return len(os.listdir(f"/proc/{self._process.pid}/fd"))  # noqa: PTH208

    def cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def _status(self, name: str) -> int:
        for line in Path(f"/proc/{self._process.pid}/status").read_text().splitlines():
            if line.startswith(name + ":"):
                return int(line.split()[1]) * 1024
        raise AssertionError(name)


def bugs_in(log: str) -> list[str]:
    """The different tracebacks in a broker's log."""
    found = re.findall(r"^Traceback .*?\n(?=\d{4}-|\Z)", log, re.DOTALL | re.MULTILINE)
    return list({traceback.rpartition("\n  File")[2]: traceback for traceback in found}.values())
