"""A story of two brokers: requests of all kinds that have fast paths, and everything that changes between them."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Final

from kwire.config.tables.access import STANDARD_AUTHORIZER
from testkit.fast_paths import topics
from testkit.fast_paths.changing import Changing
from testkit.fast_paths.consuming import Consuming, ConsumingInSession
from testkit.fast_paths.grouping import Grouping
from testkit.fast_paths.producing import Producing, Sent
from testkit.fast_paths.twins import Twins

HOSTS: Final = ("127.0.0.1", "127.0.0.2")
FRAMES_BETWEEN_COMPARISONS: Final = 40
MOST_CHANGES: Final = 12
"""The number of changes after which the brokers calm down, so that most requests have a fast path again."""


def run(seed: int, frames: int) -> Counter[str]:
    """Runs the story of a seed with so many frames. Returns the number of fast answers by API.

    Raises `Different`.
    """
    random = Random(seed)
    with Twins(_settings(random)) as twins:
        for name in topics.CONFIGS:
            topics.create(twins, name)
        _Story(random, twins).run(frames)
        twins.compare_all()
        return twins.fast.answered_fast


def _settings(random: Random) -> list[str]:
    settings = ["group.consumer.regex.refresh.interval.ms=10000"]
    if random.random() < 0.5:
        settings += [
            f"authorizer.class.name={STANDARD_AUTHORIZER}",
            "allow.everyone.if.no.acl.found=true",
            f"kwire.audit.log={random.choice(('all', 'denied', 'none'))}",
        ]
    if random.random() < 0.3:
        settings.append("fetch.max.bytes=1024")
    if random.random() < 0.2:
        settings.append("replica.selector.class=org.apache.kafka.common.replica.RackAwareReplicaSelector")
    return settings


class _Story:
    def __init__(self, random: Random, twins: Twins) -> None:
        self._random = random
        self._twins = twins
        producers: dict[tuple[int, str, int], Sent] = {}
        self._clients: dict[str, Producing | Consuming] = {}
        for host in HOSTS:
            self._clients |= {f"{host}#p{number}": Producing(random, twins, producers) for number in range(2)}
            self._clients |= {f"{host}#c{number}": Consuming(random, twins) for number in range(2)}
            self._clients |= {f"{host}#s{number}": ConsumingInSession(random, twins) for number in range(2)}
        self._pauses: dict[str, int] = {}
        """The number of turns that a consumer lets pass before its next request."""
        self._grouping = Grouping(random, twins, HOSTS)
        self._changing = Changing(random, twins, HOSTS)

    def run(self, frames: int) -> None:
        changes = 0
        for number in range(frames):
            draw = self._random.random()
            if draw < 0.08:
                self._changing.change()
                changes += 1
                if changes == MOST_CHANGES:
                    self._changing.calm_down()
                    changes = 0
            elif draw < 0.25:
                self._grouping.beat()
            else:
                self._send()
            if number % FRAMES_BETWEEN_COMPARISONS == 0:
                self._twins.compare_states()

    def _send(self) -> None:
        """Sends one frame or several of a client, whole or in parts, as they are or damaged."""
        random = self._random
        peer = random.choice([*self._clients])
        if self._pauses.get(peer, 0) > 0:
            self._pauses[peer] -= 1  # it waits for a response, perhaps
            return
        client = self._clients[peer]
        if isinstance(client, Consuming):
            self._pauses[peer] = random.choice((0, 0, 0, 1, 3))
        several = 1 if isinstance(client, ConsumingInSession) and random.random() < 0.9 else random.choice((1, 2, 5))
        frames = [client.frame() for _ in range(random.choice((1, 1, 1, several)))]
        if random.random() < 0.06:
            frames[-1] = _damaged(random, frames[-1])
        data = b"".join(frames)
        if random.random() < 0.05:
            cut = random.randrange(len(data))
            self._twins.send(peer, data[:cut])
            data = data[cut:]
        reply = self._twins.send(peer, data)
        if isinstance(client, Consuming):
            client.received(reply)


def _damaged(random: Random, frame: bytes) -> bytes:
    """Returns the frame with another byte, or with more or fewer bytes and a right size."""
    kind = random.randrange(3)
    body = bytearray(frame[4:])
    if kind == 0:
        # Often one of the last bytes: those behind the records, or behind the offset.
        position = random.choice((random.randrange(len(body)), -1 - random.randrange(min(len(body), 20))))
        body[position] ^= 1 << random.randrange(8)
    elif kind == 1:
        del body[random.randrange(len(body)) :]
    else:
        body += random.randbytes(random.randrange(1, 9))
    return len(body).to_bytes(4, "big") + body
