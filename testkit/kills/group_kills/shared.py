"""The share group of the loop: its configuration, its dead-letter topic, and how it is judged in the end."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

import attrs
from confluent_kafka import Message

from testkit.basics.waiting import eventually
from testkit.clients.confluent import reading, take_until
from testkit.clients.share_consumers import ended, make
from testkit.clients.transactions.queries import end_offset
from testkit.kills.group_kills.share_ledger import Letter, ShareLedger
from testkit.raw import topics
from testkit.servers.brokers import IS_KAFKA

SHARE = "share"
SESSION_MS, LOCK_MS = 2_000, 5_000
ENDS_WITHIN_S = 90.0


@attrs.frozen
class Shared:
    bootstrap: str
    group: str
    topic: str
    ledger: ShareLedger

    @classmethod
    def begin(cls, bootstrap: str, group: str, topic: str, ledger: ShareLedger) -> Shared:
        """Configures the group, and creates its dead-letter topic."""
        shared = cls(bootstrap, group, topic, ledger)
        config: dict[str, int | str] = {
            "share_session_timeout_ms": SESSION_MS,
            "share_record_lock_duration_ms": LOCK_MS,
        }
        if not IS_KAFKA:
            topics.create(bootstrap, shared.dead, config={"errors.deadletterqueue.group.enable": "true"})
            config["errors_deadletterqueue_topic_name"] = shared.dead
        make(bootstrap, group, **config)
        return shared

    @property
    def dead(self) -> str:
        return f"dlq.{self.group}"

    def judge(self, ends: Mapping[int, int]) -> None:
        """Every record before these ends of the partitions has come to an end, and to one."""

        def is_done() -> bool:
            self.check(self.letters())
            return all(ended(self.bootstrap, self.group, self.topic, it) == end for it, end in ends.items())

        eventually(is_done, f"{self.group} has ended all before {ends}", within_s=ENDS_WITHIN_S, pause_s=0.2)
        # The coordinator does not wait for the last letters.
        eventually(lambda: not self.ledger.without_letters(self.letters()), "every rejection has a letter", pause_s=0.2)
        letters = self.letters()
        # A member's last line may come a moment after the coordinator has its acknowledgements.
        with suppress(AssertionError):
            eventually(lambda: not self.ledger.open(ends, letters), "the last lines", within_s=5)
        self.check(letters)
        lost = self.ledger.open(ends, letters)
        assert not lost, f"nobody accepted {lost[:10]}, and they are no dead letters; {len(lost)} in all"

    def check(self, letters: list[Letter]) -> None:
        faults = self.ledger.faults(letters)
        assert not faults, "; ".join(faults[:10])

    def letters(self) -> list[Letter]:
        """Returns the records that the dead-letter topic has now."""
        if IS_KAFKA:
            return []
        end = end_offset(self.bootstrap, (self.dead, 0), committed=False)
        records: list[Message] = []
        if end:
            with reading(self.bootstrap, self.dead) as consumer:
                take_until(consumer, lambda: len(records) >= end, records, f"{end} dead letters")
        return [_letter(it) for it in records]


def _letter(record: Message) -> Letter:
    headers = {name: value for name, value in record.headers() or [] if isinstance(value, bytes)}
    partition, offset, count = (
        int(headers[f"__dlq.errors.{name}"]) for name in ("partition", "offset", "delivery.count")
    )
    return Letter((partition, offset), count)
