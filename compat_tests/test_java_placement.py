"""Our controller's placement of replicas beside Kafka's own class, for clusters with racks and missing brokers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from random import Random

import attrs
from kwire_protocol.internal.metadata_brokers import RegisterBrokerRecord

from devtools.suite.tiers import small_and_full
from kwire.metadata.controller.partitions.placement import Placer
from kwire.metadata.image import MetadataImage
from testkit.java.java_host import JavaHost

SMALL, FULL = 100, 2_000
TOPICS = 6

Assignment = list[list[int]]


@attrs.frozen
class Question:
    """A cluster, the rack of each broker, and topics of so many partitions with so many replicas."""

    racks: list[str | None]
    fenced: set[int]
    topics: list[tuple[int, int]]

    @property
    def broker_ids(self) -> range:
        return range(1, len(self.racks) + 1)

    @property
    def text(self) -> str:
        brokers = ",".join(
            ("!" if broker_id in self.fenced else "") + (rack or "-")
            for broker_id, rack in zip(self.broker_ids, self.racks, strict=True)
        )
        return " ".join((brokers, *(f"{count}:{factor}" for count, factor in self.topics)))


def random_question(seed: int) -> Question:
    random = Random(seed)
    rack_count, of_each = random.randint(1, 4), random.randint(1, 3)
    size = rack_count * of_each
    racks = [f"rack{it % rack_count}" if rack_count > 1 else None for it in range(size)]
    fenced = set(random.sample(range(1, size + 1), random.choice((0, 0, min(1, size - 1)))))
    factor = random.randint(1, min(size, 4))
    return Question(racks, fenced, [(random.randint(1, 30), factor) for _ in range(TOPICS)])


def kafkas(java: JavaHost, questions: list[Question]) -> list[list[Assignment]]:
    ended = java.succeed("PlacementOracle", stdin="".join(f"{it.text}\n" for it in questions))
    answers = [[[*map(int, it.split(","))] for it in line.split(";")] for line in ended.out.splitlines()]
    return [answers[start : start + TOPICS] for start in range(0, len(answers), TOPICS)]


def ours(question: Question) -> list[Assignment]:
    image = MetadataImage()
    for broker_id, rack in zip(question.broker_ids, question.racks, strict=True):
        registration = RegisterBrokerRecord(broker_id=broker_id, rack=rack, fenced=broker_id in question.fenced)
        image.apply(registration, offset=broker_id)
    placer = Placer.of(image)
    return [placer.place(count=count, replication_factor=factor) for count, factor in question.topics]


def spread(found: Iterable[int], broker_ids: Iterable[int]) -> int:
    counted = Counter(found)
    counts = [counted[it] for it in broker_ids]
    return max(counts) - min(counts)


@small_and_full
def test_replicas_are_placed_in_as_many_racks_and_at_least_as_evenly_as_kafkas(java: JavaHost, *, full: bool) -> None:
    questions = [random_question(seed) for seed in range(FULL if full else SMALL)]
    for question, theirs in zip(questions, kafkas(java, questions), strict=True):
        placed = ours(question)
        live = [it for it in question.broker_ids if it not in question.fenced]
        for our_topic, their_topic in zip(placed, theirs, strict=True):
            assert len(our_topic) == len(their_topic)
            assert {replicas[0] for replicas in (*our_topic, *their_topic)} <= {*live}
            for our_replicas, their_replicas in zip(our_topic, their_topic, strict=True):
                assert racks_of(question, our_replicas) == racks_of(question, their_replicas), question
            if not question.fenced:
                # Kafka's begin anywhere, so one topic may be a little luckier.
                assert spread(flat(our_topic), live) <= max(2, spread(flat(their_topic), live)), question
        leaders_of = [[replicas[0] for topic in topics for replicas in topic] for topics in (placed, theirs)]
        assert spread(leaders_of[0], live) <= max(1, spread(leaders_of[1], live)), question
        if not question.fenced:
            of_all = [[it for topic in topics for it in flat(topic)] for topics in (placed, theirs)]
            assert spread(of_all[0], live) <= max(2, spread(of_all[1], live)), question


@small_and_full
def test_a_broker_that_is_away_gets_replicas_when_kafka_gives_it_some(java: JavaHost, *, full: bool) -> None:
    questions = [it for it in map(random_question, range(FULL if full else SMALL)) if it.fenced]
    for question, theirs in zip(questions, kafkas(java, questions), strict=True):
        for our_topic, their_topic in zip(ours(question), theirs, strict=True):
            away = [sum(it in question.fenced for it in flat(topic)) for topic in (our_topic, their_topic)]
            assert away[0] <= away[1], question


def racks_of(question: Question, replicas: list[int]) -> int:
    return len({question.racks[it - 1] for it in replicas})


def flat(assignment: Assignment) -> list[int]:
    return [broker_id for replicas in assignment for broker_id in replicas]
