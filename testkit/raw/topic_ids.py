"""Topic ids, by raw requests."""

from __future__ import annotations

from kwire_protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from kwire_protocol.wire import NULL_UUID, Uuid

from testkit.raw.client import RawClient


def topic_id(client: RawClient, name: str) -> Uuid:
    answer = client.call(MetadataRequest([MetadataRequestTopic(NULL_UUID, name)]), 12)
    found: Uuid = answer.topics[0].topic_id
    return found
