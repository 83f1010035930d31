"""A client that has topics of its own, and performs every operation of an administrator and a producer on them.

They are created, grown, deleted and created again under the same names; their policies, codecs, flushes and timestamps
are changed; their records are deleted, and their partitions moved, all while an idempotent producer writes to them.
`story.py` has the records that must be in them.
"""

from __future__ import annotations

import itertools
import random
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

import attrs
from confluent_kafka import KafkaError, KafkaException, Message, Producer
from kwire_storage import names

from testkit.clients.confluent import quiet
from testkit.everything_at_once.admin import EARLIEST, LATEST, Admin
from testkit.everything_at_once.reading import read
from testkit.everything_at_once.story import Doubts, Seen, Sent, Story
from testkit.everything_at_once.worker import Reporter
from testkit.kills.sigkill.ledger import Mark
from testkit.kills.sigkill.load import RECONNECT

MOST_PARTITIONS = 4
MOST_RECORDS = 3_000
"""The maximum number of records of a topic, which is deleted then."""
MOST_IN_QUEUE = 2_000
KEYS = 40
FLUSH_WITHIN_S = 60.0
_WAITS_FOR_S = 2.0
"""The timeout for unacknowledged records of a topic that is to be deleted."""
MARK_HEADER = "mark"
# A client that still has the deleted topic of that name, or the topic before it grew, refuses a record with these: at
# once, or when it has looked at the topic again. With Apache Kafka, librdkafka does so even more often.
_UNKNOWN_TOPIC_ERRORS = (KafkaError._UNKNOWN_PARTITION, KafkaError._UNKNOWN_TOPIC)
_STORIES_OF_A_KEEPER = 1_000_000
# A topic's life begins with one of these.
PROFILES: dict[str, dict[str, str]] = {
    "plain": {},
    "aging": {"retention.bytes": "30000"},
    "aging fast": {"retention.ms": "300"},
    "compacted": {"cleanup.policy": "compact"},
    "compacted late": {"cleanup.policy": "compact", "min.compaction.lag.ms": "300"},
    "compacted and aging": {"cleanup.policy": "compact,delete", "retention.ms": "500"},
    "compacted and small": {"cleanup.policy": "compact,delete", "retention.bytes": "20000"},
}
COMMON = {
    "internal.segment.bytes": "16384",
    "segment.ms": "100",
    "index.interval.bytes": "500",
    "min.cleanable.dirty.ratio": "0.01",
    "max.compaction.lag.ms": "500",
    "delete.retention.ms": "200",
}
# What changes nothing that a story may promise.
HARMLESS: dict[str, Sequence[str | None]] = {
    "compression.type": ("producer", "gzip", "snappy", "lz4", "zstd", "uncompressed"),
    "message.timestamp.type": ("CreateTime", "LogAppendTime"),
    "flush.messages": ("1", "2", "100", None),
    "flush.ms": ("1", "50", None),
    "segment.ms": ("30", "100", "1000"),
    "internal.segment.bytes": ("8192", "16384", "65536"),
    "index.interval.bytes": ("0", "500", "4096"),
    "file.delete.delay.ms": ("0", "5", "200", None),
    "min.cleanable.dirty.ratio": ("0", "0.01", "0.5"),
    "min.compaction.lag.ms": ("0", "100"),
    "delete.retention.ms": ("0", "200"),
}
# The configuration, whether records may age with it, and whether the log may be compacted.
_Policy = tuple[dict[str, str | None], bool, bool]
_COMPACT_AND_TRIM: _Policy = (
    {"cleanup.policy": "compact,delete", "retention.ms": "-1", "retention.bytes": "-1"},
    False,
    True,
)
# What changes what a story may promise.
POLICIES: Sequence[_Policy] = (
    _COMPACT_AND_TRIM,
    ({"cleanup.policy": "compact"}, False, True),
    ({"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}, False, False),
    ({"cleanup.policy": "compact,delete", "retention.ms": "1000"}, True, True),
    ({"cleanup.policy": "delete", "retention.bytes": "50000"}, True, False),
)


@attrs.define(eq=False)
class Topic:
    name: str
    stories: list[Story]
    deletes: bool
    """True if its cleanup.policy has delete."""
    may_age: bool
    may_compact: bool

    @property
    def sent(self) -> int:
        return sum(story.sent for story in self.stories)

    @property
    def unacknowledged(self) -> int:
        return sum(story.sent - story.failed - len(story.acknowledged) for story in self.stories)


@attrs.frozen
class Order:
    """The instructions of a keeper; `names` are those of its topics."""

    bootstrap: str
    number: int
    names: Sequence[str]
    folders: Sequence[str]
    seed: int

    def __call__(self, reporter: Reporter) -> Keeper:
        return Keeper(self, reporter)


@attrs.define(eq=False)
class Keeper:
    order: Order
    reporter: Reporter
    _random: random.Random = attrs.field(init=False)
    _admin: Admin = attrs.field(init=False)
    _producer: Producer = attrs.field(init=False)
    _topics: dict[str, Topic] = attrs.field(factory=dict)
    _older: deque[tuple[str, int, set[int]]] = attrs.field(factory=lambda: deque(maxlen=200))
    """Name and number of stories that have ended, and the records that may still come to the topic's successor."""
    _numbers: Iterator[int] = attrs.field(init=False)
    _filling: bytes = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        order = self.order
        self._random = random.Random(order.seed)
        self._admin = Admin(order.bootstrap)
        self._numbers = itertools.count(order.number * _STORIES_OF_A_KEEPER)
        self._filling = self._random.randbytes(1_000) + bytes(1_000)
        self._producer = self._new_producer()

    def _new_producer(self) -> Producer:
        settings = {
            "bootstrap.servers": self.order.bootstrap,
            "enable.idempotence": True,
            "acks": "all",
            "compression.type": self._random.choice(("none", "gzip", "snappy", "lz4", "zstd")),
            "linger.ms": 2,
            "batch.size": 3_000,
            "topic.metadata.refresh.interval.ms": 500,
            # So soon it gives up what it has for a topic that is gone.
            "topic.metadata.propagation.max.ms": 3_000,
            **RECONNECT,
            "retry.backoff.max.ms": 100,
        }
        return Producer(settings, logger=quiet)

    # -- work

    def step(self) -> None:
        name = self._random.choice(self.order.names)
        topic = self._topics.get(name)
        if topic is None:
            self._create(name)
        elif topic.sent > MOST_RECORDS:
            self._delete_and_create(topic)
        elif self._random.random() < 0.5 and (story := self._being_cleaned()) is not None:
            self._take_what_is_cleaned(story)
        else:
            acts, weights = zip(*_ACTS.items(), strict=True)
            act: Callable[[Keeper, Topic], None] = self._random.choices(acts, weights)[0]
            act(self, topic)
        self._producer.poll(0)

    def _create(self, name: str) -> None:
        profile = PROFILES[self._random.choice(list(PROFILES))]
        policy = profile.get("cleanup.policy", "delete").split(",")
        topic = Topic(
            name,
            [],
            deletes="delete" in policy,
            may_age="retention.ms" in profile or "retention.bytes" in profile,
            may_compact="compact" in policy,
        )
        partitions = self._random.randrange(1, MOST_PARTITIONS)
        self._admin.create(name, partitions, {**COMMON, **profile})
        self._add_stories(topic, partitions)
        self._topics[name] = topic
        self.reporter.count("topics created")

    def _add_stories(self, topic: Topic, partitions: int) -> None:
        while len(topic.stories) < partitions:
            spot = topic.name, len(topic.stories)
            topic.stories.append(
                Story(
                    spot,
                    next(self._numbers),
                    self.reporter.complain,
                    may_age=topic.may_age,
                    may_compact=topic.may_compact,
                )
            )

    def _produce(self, topic: Topic) -> None:
        for _ in range(self._random.randrange(5, 120)):
            if len(self._producer) >= MOST_IN_QUEUE:
                self._producer.poll(0.05)
                break
            story = self._random.choice(topic.stories)
            key = b"key %d" % self._random.randrange(KEYS)
            sent = story.send(key, is_tombstone=topic.may_compact and self._random.random() < 0.1)
            size = self._random.randrange(10, 400)
            at = self._random.randrange(len(self._filling) - size)
            mark = story.mark(sent).value(b"" if sent.is_tombstone else self._filling[at : at + size])
            try:
                self._producer.produce(
                    topic.name,
                    None if sent.is_tombstone else mark,
                    key,
                    story.spot[1],
                    on_delivery=partial(self._on_delivery, story, sent),
                    headers=[(MARK_HEADER, mark)] if sent.is_tombstone else None,
                )
            except KafkaException as exception:
                if exception.args[0].code() not in _UNKNOWN_TOPIC_ERRORS:
                    raise
                story.failed += 1
                with suppress(KafkaException):  # while the broker is away
                    self._producer.list_topics(topic.name, timeout=1.0)
                break

    def _on_delivery(self, story: Story, sent: Sent, error: KafkaError | None, message: Message) -> None:
        if not self._is_current(story):
            return  # It may be in any of the topics of that name.
        if error is not None:
            story.failed += 1
            if error.code() not in _UNKNOWN_TOPIC_ERRORS or not self._had_another(story.spot[0]):
                self.reporter.complain(f"{story.spot}: {sent} was refused: {error}")
        else:
            story.acknowledge(sent, int(message.offset() or 0))
            self.reporter.count("records acknowledged to keepers")

    def _is_current(self, story: Story) -> bool:
        topic = self._topics.get(story.spot[0])
        return topic is not None and any(it is story for it in topic.stories)

    def _delete(self, topic: Topic) -> None:
        if self._random.random() < 0.5:
            until = time.monotonic() + _WAITS_FOR_S
            while topic.unacknowledged and time.monotonic() < until:
                self._producer.poll(0.01)
        # What is not acknowledged by now may come to a topic that is made under the same name.
        self._forget(topic)
        self._admin.delete(topic.name)
        self.reporter.count("topics deleted")

    def _delete_and_create(self, topic: Topic) -> None:
        self._delete(topic)
        self._create(topic.name)

    def _forget(self, topic: Topic) -> None:
        del self._topics[topic.name]
        for story in topic.stories:
            acknowledged = {sent.sequence for sent in story.acknowledged.values()}
            self._older.append((topic.name, story.number, set(range(story.sent)) - acknowledged))

    def _grow(self, topic: Topic) -> None:
        if len(topic.stories) < MOST_PARTITIONS:
            self._admin.grow(topic.name, len(topic.stories) + 1)
            self._add_stories(topic, len(topic.stories) + 1)
            self.reporter.count("topics grown")

    def _configure(self, topic: Topic) -> None:
        names = self._random.sample(sorted(HARMLESS), self._random.randrange(1, 4))
        self._admin.configure(topic.name, {name: self._random.choice(HARMLESS[name]) for name in names})
        self.reporter.count("configurations changed")

    def _change_policy(self, topic: Topic) -> None:
        self._set_policy(topic, self._random.choice(POLICIES))

    def _set_policy(self, topic: Topic, policy: _Policy) -> None:
        config, ages, compacts = policy
        # Already from the request on. What was done before is not undone.
        topic.may_age |= ages
        topic.may_compact |= compacts
        for story in topic.stories:
            story.may_age, story.may_compact = topic.may_age, topic.may_compact
        self._admin.configure(topic.name, config)
        topic.deletes = "delete" in str(config["cleanup.policy"])
        self.reporter.count("policies changed")

    def _trim(self, topic: Topic) -> None:
        story = self._random.choice(topic.stories)
        if not topic.deletes or not story.highest_end:
            return
        self._trim_before(story, self._random.randrange(story.highest_end + 1))

    def _trim_before(self, story: Story, offset: int) -> None:
        story.check_start(self._admin.offset(story.spot, EARLIEST), time.monotonic())
        story.begin_trim(offset)
        story.trim(offset, self._admin.delete_records(story.spot, offset), time.monotonic())
        self.reporter.count("DeleteRecords")

    def _being_cleaned(self) -> Story | None:
        """A story whose partition is being compacted right now."""
        for topic in self._topics.values():
            for story in topic.stories if topic.may_compact else ():
                for folder in self.order.folders:
                    if any(Path(folder, names.partition_folder(*story.spot)).glob(f"*{names.CLEANED}")):
                        return story
        return None

    def _take_what_is_cleaned(self, story: Story) -> None:
        """Deletes the records that a cleaning is working on, so that its segments may be gone before it ends."""
        topic = self._topics[story.spot[0]]
        if not topic.deletes:
            self._set_policy(topic, _COMPACT_AND_TRIM)
        self._trim_before(story, story.highest_end)
        self.reporter.count("DeleteRecords of what is cleaned")

    def _move(self, topic: Topic) -> None:
        story = self._random.choice(topic.stories)
        if self._admin.move(story.spot, self._random.choice(self.order.folders)):
            self.reporter.count("moves")

    # -- questions

    def _check_topic(self, topic: Topic) -> None:
        for story in topic.stories:
            # In this order: what is deleted in between is no contradiction.
            start = self._admin.offset(story.spot, EARLIEST)
            known = story.highest_end
            end = self._admin.offset(story.spot, LATEST)
            assert known <= story.highest_end
            story.check_bounds(start, end, time.monotonic())
        self.reporter.count("looks at offsets")

    def _read(self, topic: Topic) -> None:
        self._check(self._random.choice(topic.stories))

    def _check(self, story: Story) -> None:
        doubts = self._read_and_check(story)
        if doubts:
            self.reporter.count("partitions read twice")
            story.complain_of(doubts.shared_with(self._read_and_check(story)))
        self.reporter.count("partitions read by keepers")

    def _read_and_check(self, story: Story) -> Doubts:
        known = dict(story.acknowledged)
        end = self._admin.offset(story.spot, LATEST)
        seen: list[Seen] = []
        for message in read(self.order.bootstrap, story.spot, end):
            try:
                seen.append(_seen(message))
            except ValueError as error:
                self.reporter.complain(f"{story.spot} at {message.offset()}: {error}")
        start = self._admin.offset(story.spot, EARLIEST)
        found = story.check_records(seen, start, partial(self._is_older, story.spot[0]))
        self.reporter.count("records read by keepers", len(found))
        return story.doubts(found, known, start)

    def _had_another(self, name: str) -> bool:
        """True if there was an earlier topic of that name."""
        return any(name == it[0] for it in self._older)

    def _is_older(self, name: str, mark: Mark) -> bool:
        return any(name == it[0] and mark.producer == it[1] and mark.sequence in it[2] for it in self._older)

    # -- the end

    def settle(self) -> None:
        for name in self.order.names:
            if name not in self._topics:
                self._create(name)
        left = self._producer.flush(FLUSH_WITHIN_S)
        if left:
            self.reporter.complain(f"{left} records of a keeper were not acknowledged within {FLUSH_WITHIN_S} s")
        self._admin.close()
        del self._producer

    def judge(self) -> None:
        for topic in self._topics.values():
            self._check_topic(topic)
            for story in topic.stories:
                self._check(story)
        self._admin.close()

    def leave(self) -> None:
        for topic in list(self._topics.values()):
            self._forget(topic)
            self._admin.delete(topic.name)
        self._admin.close()

    def close(self) -> None:
        self._admin.close()


def _seen(message: Message) -> Seen:
    """Raises ValueError when it is not what was sent."""
    value = message.value()
    if value is None:
        headers = dict(message.headers() or [])
        return Seen(int(message.offset() or 0), bytes(message.key() or b""), Mark.of(headers[MARK_HEADER]), True)
    return Seen(int(message.offset() or 0), bytes(message.key() or b""), Mark.of(value), False)


_ACTS: dict[Callable[[Keeper, Topic], None], float] = {
    Keeper._produce: 20,
    Keeper._delete: 0.5,
    Keeper._delete_and_create: 1.5,
    Keeper._grow: 0.5,
    Keeper._configure: 3,
    Keeper._change_policy: 0.7,
    Keeper._trim: 2,
    Keeper._move: 3,
    Keeper._check_topic: 3,
    Keeper._read: 1.5,
}
