"""A member of the share group in a process of its own: takes records, and accepts, releases or rejects each by chance.

    python -m testkit.kills.group_kills.share_reader '{"bootstrap": "...", "group": "g", "topic": "t", "seed": 7}'

Each line that it prints is a JSON list of acknowledgements: ["says", partition, [offset, count, kind], ...] before it
commits them, and the same with "said" when the broker has confirmed them. `count` is the record's delivery count,
`kind` the type of the acknowledgement.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from confluent_kafka import KafkaException, ShareConsumer

from testkit.clients.share_consumers import ACCEPT, REJECT, RELEASE, sharing

PATIENCE_S, COMMITS_WITHIN_S = 0.2, 10.0
LONGEST_HOLD_S = 0.1
CHANCES = {ACCEPT: 80, RELEASE: 12, REJECT: 8}

Words = Mapping[int, Sequence[tuple[int, int, int]]]
"""The results of the records of each partition."""


def main() -> None:
    wanted = json.loads(sys.argv[1])
    chance = random.Random(wanted["seed"])
    config: dict[str, Any] = {"max.poll.records": 40}
    with sharing(wanted["bootstrap"], wanted["group"], wanted["topic"], **config) as consumer:
        while True:
            words = take(consumer, chance)
            if words:
                report("says", words)
                time.sleep(chance.uniform(0, LONGEST_HOLD_S))
                report("said", confirmed(consumer, words))


def take(consumer: ShareConsumer, chance: random.Random) -> Words:
    words: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
    for message in consumer.poll(PATIENCE_S):
        if message.error() is None:
            (kind,) = chance.choices(list(CHANCES), list(CHANCES.values()))
            consumer.acknowledge(message, kind)
            words[message.partition() or 0].append((message.offset() or 0, message.delivery_count() or 0, int(kind)))
    return words


def confirmed(consumer: ShareConsumer, words: Words) -> Words:
    """Returns the confirmed ones. The others are delivered again, or their end was not reported."""
    try:
        outcomes = consumer.commit_sync(COMMITS_WITHIN_S)
    except KafkaException:
        return {}
    return {it.partition: words[it.partition] for it, error in outcomes.items() if error is None}


def report(what: str, words: Words) -> None:
    for partition, of_partition in words.items():
        line: list[Any] = [what, partition, *of_partition]
        print(json.dumps(line), flush=True)  # noqa: T201 - this is what it is for


if __name__ == "__main__":
    main()
