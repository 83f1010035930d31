"""The one thing the coordinator reads in a consumer's opaque metadata: which topics it is subscribed to.

The consumer protocol's subscription begins, in every version, with an int16 version and the fields of version 0: topic
names and user data. Knowing the topics lets offsets of topics that nobody reads any more expire while the group is
alive, and guards those that are read against OffsetDelete. Metadata that does not parse means that the topics are
unknown, not that the member is wrong.
"""

from __future__ import annotations

from collections.abc import Iterable

from kwire_protocol.internal.consumer_protocol import ConsumerProtocolSubscription
from kwire_protocol.wire import ProtocolError, Reader

CONSUMER_PROTOCOL_TYPE = "consumer"

_PREFIX_OF_ALL_VERSIONS = 0


def subscribed_topics(subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """The union of the topics of all members, or None when one of the subscriptions cannot be read."""
    topics: set[str] = set()
    try:
        for metadata in subscriptions:
            reader = Reader(metadata)
            if reader.int16() < 0:
                return None
            topics.update(ConsumerProtocolSubscription.read(reader, _PREFIX_OF_ALL_VERSIONS).topics)
    except ProtocolError:
        return None
    return frozenset(topics)
