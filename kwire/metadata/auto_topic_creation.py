"""The creation of topics that clients have named, as by Kafka's `AutoTopicCreationManager`."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import attrs
from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError

from kwire.metadata.controller.topics.auto_created_topics import auto_create_topic

if TYPE_CHECKING:
    from kwire.metadata.service import MetadataService

log = logging.getLogger(__name__)

MOST_REFUSED_TOPICS: Final = 1000
"""The limit on topics whose refused creation is remembered, each with its reason."""


@attrs.define(eq=False)
class AutoTopicCreation:
    """Creates the topics that the clients of one broker name. No refusal is sent to these clients: it is logged."""

    metadata: MetadataService
    _refused: dict[str, str] = attrs.field(factory=dict)
    """The topics that could not be created, with the reason that was logged."""

    async def create(self, name: str) -> None:
        """Creates a topic. The reason of a refusal is logged once while it stays the same: a client tries again several
        times a second."""
        try:
            await self.metadata.change(auto_create_topic, name)
        except KafkaError as error:
            reason = str(error)
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS and self._refused.get(name) != reason:
                if len(self._refused) >= MOST_REFUSED_TOPICS:
                    del self._refused[next(iter(self._refused))]
                self._refused[name] = reason
                log.warning("topic %s, which a client requested, cannot be created: %s", name, reason)
        else:
            self._refused.pop(name, None)
