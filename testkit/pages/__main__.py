"""Runs a page as a newcomer does: `python -m testkit.pages FOLDER PAGE`.

```sh blocks are sent to one shell, ```python blocks to one Python prompt, in their order, both in FOLDER. They are not
changed by a byte. A ```text block is the output of the block before it, each of its lines somewhere; `...` matches
anything. The output of each block is in FOLDER/blocks, and the first that fails ends the run with exit code 1.

The page's ports are the well-known ones; `apart.py` gives it a network of its own, in which they are free (Linux).
With --zookeeper, a server is there on port 2181.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import signal
import socket
import struct
import subprocess
import sys
from contextlib import ExitStack, suppress
from pathlib import Path

import attrs

from devtools.markdown import Block, fenced_blocks
from devtools.zookeeper import ZooKeeper
from testkit.basics.waiting import eventually

_BLOCK_ENDS_WITHIN_S = 600
_LAST_WORDS = 3000

_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 1


class BlockFailed(Exception):
    """A block of the page that failed, and its last output."""


@attrs.define(eq=False)
class Terminal:
    """A process that takes files by their names, runs what is in them, and writes FILE.out and FILE.ended."""

    process: subprocess.Popen[str]
    line: str
    """The answer to a prompt for a FILE."""

    def run(self, file: Path) -> str:
        """Returns the output of the block. Raises BlockFailed."""
        assert self.process.stdin is not None
        out = Path(f"{file}.out")
        self.process.stdin.write(self.line.format(file=file) + "\n")
        self.process.stdin.flush()
        eventually(
            lambda: _exit_code(file) or self.process.poll() is not None, f"{file} ends", within_s=_BLOCK_ENDS_WITHIN_S
        )
        printed = out.read_text(encoding="utf-8", errors="replace") if out.exists() else ""
        if _exit_code(file) != "0":
            raise BlockFailed(f"it failed; the end of what it printed:\n{printed[-_LAST_WORDS:]}")
        return printed

    def close(self) -> None:
        """Ends it, and everything that the page left running in the background."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            self.process.wait(60)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


def _exit_code(file: Path) -> str:
    """Empty until the block has ended: the file is there a moment before its contents."""
    ended = Path(f"{file}.ended")
    return ended.read_text().strip() if ended.exists() else ""


def run_page(folder: Path, page: Path) -> None:
    """Raises BlockFailed, with the line of the page."""
    blocks = folder / "blocks"
    blocks.mkdir(parents=True)
    with ExitStack() as stack:
        # A command that fails ends the shell, so that nothing of its block runs behind it.
        shell = Terminal(_start(folder, ["bash", "-e"]), ". {file} </dev/null >{file}.out 2>&1; echo $? >{file}.ended")
        stack.callback(shell.close)
        prompt = Terminal(_start(folder, [sys.executable, "-m", "testkit.pages.prompt"]), "{file}")
        stack.callback(prompt.close)
        printed = ""
        for block in fenced_blocks(page):
            file = blocks / f"{block.line:03}.{block.language}"
            file.write_text(block.text, encoding="utf-8")
            try:
                match block.language:
                    case "sh":
                        printed = shell.run(file)
                    case "python":
                        printed = prompt.run(file)
                    case "text":
                        _compare(block, printed)
            except BlockFailed as error:
                raise BlockFailed(f"{page.name}, line {block.line}: {error}") from None


def _compare(block: Block, printed: str) -> None:
    for line in block.text.splitlines():
        parts = [part.strip() for part in line.split("...")]
        if not any(_has_in_order(it, parts) for it in printed.splitlines()):
            raise BlockFailed(f"the block before did not print {line!r}, but:\n{printed[-_LAST_WORDS:]}")


def _has_in_order(line: str, parts: list[str]) -> bool:
    for part in parts:
        _, found, line = line.partition(part) if part else ("", True, line)
        if not found:
            return False
    return True


def _start(folder: Path, command: list[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(command, cwd=folder, stdin=subprocess.PIPE, text=True, start_new_session=True)


def _loopback_up() -> None:
    """Starts the loopback device, which is down in a new network namespace."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("16sh14x", b"lo", 0)
        flags = struct.unpack("16sh14x", fcntl.ioctl(any_socket, _SIOCGIFFLAGS, request))[1]
        if not flags & _IFF_UP:
            fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", flags | _IFF_UP))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m testkit.pages", description=__doc__)
    parser.add_argument("folder", type=Path, help="where the blocks run; FOLDER/blocks gets what they print")
    parser.add_argument("page", type=Path)
    parser.add_argument("--zookeeper", action="store_true", help="start a ZooKeeper on 127.0.0.1:2181 for the page")
    options = parser.parse_args()
    if sys.platform == "linux":
        _loopback_up()
    with ExitStack() as services:
        if options.zookeeper:
            services.enter_context(ZooKeeper(port=2181))
        try:
            run_page(options.folder.absolute(), options.page.absolute())
        except BlockFailed as failed:
            sys.exit(str(failed))


if __name__ == "__main__":
    main()
