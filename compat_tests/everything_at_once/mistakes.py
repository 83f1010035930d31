"""Races that are put into the broker on purpose, to see that a run finds them.

Each is a mistake that one could make at a place where something runs beside the event loop. It takes the place of a
function that is found by its name: where there is none of that name any more, the broker does not start. What each
stands for is the text beside it. `python -m compat_tests.everything_at_once.mistakes` makes one after the other.
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import attrs
import click
from kwire_storage import names
from kwire_storage.checkpoints import TopicPartition
from kwire_storage.compaction.planning import Compaction
from kwire_storage.directory.moving import LogMove
from kwire_storage.directory.offset_checkpoints import OffsetCheckpoints
from kwire_storage.disk.files import Disk
from kwire_storage.log.environment import DeletedFiles, LogEnvironment
from kwire_storage.log.log import Log
from kwire_storage.log.swap_files import rename_if_there
from rich.console import Console
from rich.table import Table

from kwire.replicas.flush_gate import FlushGate
from kwire.replicas.flusher import Flusher

from ..java_host import java_host

VARIABLE = "KWIRE_MISTAKE"
"""Of the environment, by which the broker's process learns which mistake to make."""
WITHIN_S = 60.0
MOST_TRIES = 3


@attrs.frozen
class Mistake:
    """`places` are `module:name` or `module:Class.name`, with what takes the place of the function there."""

    name: str
    what: str
    places: Mapping[str, Callable[..., Any]]

    def make(self) -> None:
        """Raises AttributeError where there is no such function."""
        for place, function in self.places.items():
            owner, name = _find(place)
            getattr(owner, name)
            setattr(owner, name, function)


def _find(place: str) -> tuple[object, str]:
    module, _, path = place.partition(":")
    *owners, name = path.split(".")
    owner: object = importlib.import_module(module)
    for it in owners:
        owner = getattr(owner, it)
    return owner, name


def parameters_of(place: str) -> list[str]:
    """Names of what the function takes whose place it is. Raises AttributeError where there is none."""
    return parameters(getattr(*_find(place)))


def parameters(function: Callable[..., object]) -> list[str]:
    return list(inspect.signature(function).parameters)


async def _flush_at_once(self: Flusher, gate: FlushGate) -> None:
    await self._flush_once(gate)


def _leave_to_the_clock(self: OffsetCheckpoints, key: TopicPartition) -> None: ...


def _finish_without_the_rest(
    self: LogMove,
    *,
    max_bytes: int,
    unique: bytes,
    now_ms: int,
) -> Log:
    source, copy = self.source, self.copy
    copy.producer_state.adopt(source.producers)
    copy.close(clean=True)
    copy.give_up_folder()
    self.source_folder.delete_log(*self.key, unique)
    path = self.target_folder.futures.pop(self.key)
    self.target_folder.take_in(self.key, path)
    log = self.target_folder.open_log(*self.key, source.config, now_ms=now_ms, is_clean=True)
    log.cleaned_offset = source.cleaned_offset
    return log


def _begin_unasked(log: Log, compaction: Compaction) -> None:
    log.is_exchanging = True


def _replace_unasked(log: Log, compaction: Compaction, now_ms: int) -> Iterator[None]:
    for group in compaction.groups:
        group.cleaned.file_suffix = names.LOG + names.SWAP
        log.replace_segments(group.segments, group.cleaned, now_ms)
        for suffix in names.SEGMENT_SUFFIXES[1:]:
            rename_if_there(log.disk, group.path + suffix + names.SWAP, group.path + suffix)
        yield


def _delete_without_renaming(self: LogEnvironment, disk: Disk, paths: Iterable[str], due_ms: int) -> None:
    self.deleted.append(DeletedFiles(due_ms, list(paths)))


MISTAKES = {
    it.name: it
    for it in (
        Mistake(
            "two-flushes",
            "the cleaner has a log flushed while the flush that a roll asked for is under way",
            {"kwire.replicas.flusher:Flusher.flush": _flush_at_once},
        ),
        Mistake(
            "stale-checkpoint",
            "what a checkpoint says of a deleted topic is left to the clock, though another topic has its name by then",
            {"kwire_storage.directory.offset_checkpoints:OffsetCheckpoints.write_what_tells_of": _leave_to_the_clock},
        ),
        Mistake(
            "move-without-the-rest",
            "a copy takes the place of its log without what was appended since they were last compared",
            {"kwire_storage.directory.moving:LogMove.finish": _finish_without_the_rest},
        ),
        Mistake(
            "swap-of-what-is-gone",
            "a cleaning does not ask whether retention has deleted meanwhile what it has cleaned",
            {
                "kwire_storage.compaction.swap:begin": _begin_unasked,
                "kwire_storage.compaction.swap:replace": _replace_unasked,
            },
        ),
        Mistake(
            "removal-by-the-old-name",
            "a deleted segment's files keep their names until they are removed, when others may have these names",
            {"kwire_storage.log.environment:LogEnvironment.delete_later": _delete_without_renaming},
        ),
    )
}


_ERROR = re.compile(r"^[\s|]*(\w*(?<!Group)(?:Error|Exception): .*)$", re.MULTILINE)


def _gist(complaint: str) -> str:
    """Of a traceback its error."""
    found = _ERROR.search(complaint)
    return (found[1] if found and "Traceback" in complaint else complaint)[:300]


@click.command()
@click.argument("chosen", nargs=-1, type=click.Choice(list(MISTAKES)))
@click.option("--seconds", type=click.FloatRange(1), default=WITHIN_S, show_default=True, help="Of load, at most.")
@click.option("--seed", type=int, default=1, show_default=True, help="Of the first try; each has one of its own.")
@click.option("--tries", type=click.IntRange(1), default=MOST_TRIES, show_default=True, help="Of a mistake, at most.")
def main(chosen: tuple[str, ...], seconds: float, seed: int, tries: int) -> None:
    """Makes one deliberate mistake after the other, and tells after how many seconds of load each was found.

    Mostly that is a matter of seconds. But something has to happen at the right moment, and a busy machine may not see
    that in a minute: then the mistake is made again. Ends with 1 if one was never found.
    """
    from .run import run

    table = Table("mistake", "try", "found after", "by")
    missed = False
    with java_host() as java:
        for name in chosen or MISTAKES:
            for number in range(1, tries + 1):
                account = run(seconds, seed + number - 1, java=java, mistake=name)
                after = "not found" if account.found_after_s is None else f"{account.found_after_s:.1f} s"
                by = _gist(account.complaints[0]) if account.complaints else ""
                table.add_row(name, str(number), after, by)
                Console(stderr=True).print(name, after, by, markup=False)
                if account.complaints:
                    break
            else:
                missed = True
    Console().print(table)
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main(prog_name="python -m compat_tests.everything_at_once.mistakes")
