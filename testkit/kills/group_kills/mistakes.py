"""Deliberate mistakes with share groups, to see that a run finds them.

`python -m testkit.kills.group_kills.mistakes` is the `kwire` command with the mistake that KWIRE_MISTAKE names.
"""

from __future__ import annotations

import os
import sys

import attrs

from kwire.cli import main
from kwire.metadata.image import TopicImage
from kwire.replicas.partition import Partition
from kwire.share.coordinator.records import Update, read_record
from kwire.share.coordinator.shard import ShareStateShard
from kwire.share.leader.dead_letters import DeadLetters
from kwire.share.leader.effects import DeadLetter, Effect
from kwire.share.leader.share_partition import SharePartition
from testkit.mutants.processes import VARIABLE, Mistake

_copy = DeadLetters.copy
_dead_lettered = SharePartition.dead_lettered


def _replay_every_second(
    self: ShareStateShard, key: bytes, value: bytes | None, producer_id: int = -1, *, offset: int
) -> None:
    change = read_record(key, value)
    if change is not None and not (isinstance(change, Update) and offset % 2):
        self._apply(change, offset)


def _without_letter(self: SharePartition, letter: DeadLetter) -> list[Effect]:
    _dead_lettered(self, letter)
    return []


async def _find_nothing(
    self: DeadLetters,
    group_id: str,
    topic: TopicImage,
    partition: Partition,
    letter: DeadLetter,
) -> set[int]:
    return set()


async def _copy_the_first(self: DeadLetters, group_id: str, partition: Partition, letter: DeadLetter) -> int:
    await _copy(self, group_id, partition, attrs.evolve(letter, last_offset=letter.first_offset))
    return letter.last_offset


async def _count_one_more(self: DeadLetters, group_id: str, partition: Partition, letter: DeadLetter) -> int:
    return await _copy(self, group_id, partition, attrs.evolve(letter, delivery_count=letter.delivery_count + 1))


MISTAKES = {
    it.name: it
    for it in (
        Mistake(
            "acknowledgements-lost-in-replay",
            "after a restart the share coordinator does not know every second update",
            {"kwire.share.coordinator.shard:ShareStateShard.apply": _replay_every_second},
        ),
        Mistake(
            "letters-sent-again-after-a-restart",
            "that a record is in the dead-letter topic is not persisted, and nobody looks there",
            {
                "kwire.share.leader.share_partition:SharePartition.dead_lettered": _without_letter,
                "kwire.share.leader.dead_letters:DeadLetters._already_there": _find_nothing,
            },
        ),
        Mistake(
            "the-first-letter-only",
            "of neighbours that have failed only the first is copied",
            {"kwire.share.leader.dead_letters:DeadLetters.copy": _copy_the_first},
        ),
        Mistake(
            "a-wrong-count",
            "a letter says that the record was delivered once more than it was",
            {"kwire.share.leader.dead_letters:DeadLetters.copy": _count_one_more},
        ),
    )
}


def command(mistake: str) -> tuple[str, ...]:
    """Instead of `kwire`."""
    return ("env", f"{VARIABLE}={mistake}", sys.executable, "-m", __name__)


if __name__ == "__main__":
    MISTAKES[os.environ[VARIABLE]].make()
    main(prog_name="kwire")
