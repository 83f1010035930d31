"""Descriptions of topologies (KIP-1331): every node of an application, and its connections. An assignment needs less.

A heartbeat's response requests one, and the member sends it with StreamsGroupTopologyDescriptionUpdate. The request
goes to one member at a time. If no description comes, or it cannot be stored, it goes to the next one after a back-off
that doubles.

    not requested ---> requested; the next one in 30 s ---> in 60 s ---> ... ---> in an hour
           ^                        |
           +------- stored ---------+--- refused for good: not again for this topology

The group's epoch record has the topology epoch whose description was stored, and the one whose description was refused
for good, as Apache Kafka 4.4 writes them. The description itself is in a `DescriptionStore`, which starts empty. Apache
Kafka relies on the record, and so never requests again what its in-memory plugin has lost. Here the store itself
counts: after a restart, or on another broker, the next heartbeat's response requests the description.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from enum import IntEnum
from typing import Final

import attrs
from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages.streams_group_describe import DescribedGroup
from kwire_protocol.messages.streams_group_describe import TopologyDescription as DescribedTopology
from kwire_protocol.messages.streams_group_heartbeat import StreamsGroupHeartbeatResponse
from kwire_protocol.messages.streams_group_topology_description_update import (
    StreamsGroupTopologyDescriptionUpdateRequest,
    TopologyDescription,
    TopologyDescriptionNode,
)
from kwire_protocol.wire import Reader, Writer

from kwire.backoff import Backoff
from kwire.coordinators.effects import Now, Step, Token, response_error
from kwire.groups.draft import Draft
from kwire.groups.modern.groups import Groups
from kwire.groups.streams.changes import EpochChange, StreamsEpoch
from kwire.groups.streams.group import Solicitation, StreamsGroup
from kwire.groups.topology_descriptions import DescriptionStore, StoredDescription

log = logging.getLogger(__name__)

MAX_DESCRIPTION_BYTES: Final = 1 << 20
"""The maximum size of one description. Kafka's plugin has no bound."""
PAUSES_MS: Final = Backoff(first=30_000, longest=3_600_000)
"""Kafka's constants. Kafka spreads them by a fifth; here only one member at a time gets the request anyway."""

_PUSHED_VERSION: Final = 0
_DESCRIBED_VERSION: Final = 1


class NodeType(IntEnum):
    SOURCE = 1
    PROCESSOR = 2
    SINK = 3


class DescriptionStatus(IntEnum):
    """The status of a description in StreamsGroupDescribe. ERROR is for plugins that fail; the store does not."""

    NOT_REQUESTED = 0
    NOT_STORED = 1
    ERROR = 2
    AVAILABLE = 3


@attrs.define(eq=False)
class Descriptions:
    """Without a `store` the feature is off: no description is requested, and no group has one."""

    groups: Groups[StreamsGroup]
    store: DescriptionStore | None

    # Requesting

    def are_wanted(self, group: StreamsGroup) -> bool:
        topology = group.topology
        if self.store is None or topology is None or group.failed_description_topology_epoch == topology.epoch:
            return False
        stored = self.store.find(group.group_id)
        return stored is None or stored.topology_epoch != topology.epoch

    def solicit(self, step: Step, group: StreamsGroup, response: StreamsGroupHeartbeatResponse) -> None:
        """Requests the description with this response, unless another member got the request recently."""
        solicitation = group.solicitation
        if solicitation is None or step.now.monotonic_ms >= solicitation.until_ms:
            _back_off(group, step.now)
            response.topology_description_required = True
            log.info(
                "group %a: requested the topology's description from member %a", group.group_id, response.member_id
            )

    # Storing

    def update(self, step: Step, request: StreamsGroupTopologyDescriptionUpdateRequest, token: Token) -> None:
        """Stores the description. Replies with None, or with a KafkaError.

        GROUP_ID_NOT_FOUND, UNKNOWN_MEMBER_ID; INVALID_REQUEST for another topology epoch than the group's, and for a
        description that contradicts itself; STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED if it is not stored.
        """
        assert self.store is not None
        try:
            group, encoded = self._accepted(request)
        except KafkaError as refused:
            step.reply(token, refused)
            return
        epoch = request.topology_epoch
        if len(encoded) > MAX_DESCRIPTION_BYTES:
            reason = f"The description has {len(encoded)} bytes. There is room for {MAX_DESCRIPTION_BYTES}."
            log.warning("group %a: its topology is not described: %s", group.group_id, reason)
            after = attrs.evolve(group.epoch_value(), failed_description_topology_epoch=epoch)
            self._record(step, group, after, None, token, _failed(reason))
        elif not self.store.has_room_for(group.group_id, encoded):
            reason = "There is no room for the description on this broker."
            log.warning("group %a: its topology is not described: %s", group.group_id, reason)
            _back_off(group, step.now)
            step.reply(token, _failed(reason))
        else:
            after = attrs.evolve(group.epoch_value(), stored_description_topology_epoch=epoch)
            self._record(step, group, after, StoredDescription(epoch, encoded), token, None)

    def _accepted(self, request: StreamsGroupTopologyDescriptionUpdateRequest) -> tuple[StreamsGroup, bytes]:
        group = self.groups.get(request.group_id)
        group.member(request.member_id)
        current = -1 if group.topology is None else group.topology.epoch
        if request.topology_epoch != current:
            raise _invalid(
                f"Topology epoch {request.topology_epoch} does not match the group's current topology epoch {current}."
            )
        check_description(request.topology_description)
        w = Writer()
        request.topology_description.write(w, _PUSHED_VERSION)
        return group, w.getvalue()

    def _record(
        self,
        step: Step,
        group: StreamsGroup,
        after: StreamsEpoch,
        description: StoredDescription | None,
        token: Token,
        outcome: KafkaError | None,
    ) -> None:
        """Records the outcome, which counts only then. If that fails, the description is requested again later."""

        def recorded(later: Step) -> None:
            group.solicitation = None
            if description is not None and self.store is not None:
                self.store.put(group.group_id, description)
            later.reply(token, outcome)

        def failed(later: Step, error: ErrorCode) -> None:
            _back_off(group, later.now)
            later.reply(token, KafkaError(response_error(error)))

        draft = Draft()
        if after != group.epoch_value():
            draft.change(group, EpochChange(group.group_id, after))
        draft.then(recorded)
        draft.append(step, failed)

    def forget(self, group: StreamsGroup) -> None:
        """The group is gone from this coordinator, or is of another kind now."""
        if self.store is not None:
            self.store.forget(group.group_id)

    # Describing

    def describe(self, group: StreamsGroup, described: DescribedGroup) -> None:
        described.topology_description_status = DescriptionStatus.NOT_STORED
        stored = None if self.store is None else self.store.find(group.group_id)
        if stored is not None and group.topology is not None and stored.topology_epoch == group.topology.epoch:
            # Both messages have the same fields.
            described.topology_description = DescribedTopology.read(Reader(stored.encoded), _DESCRIBED_VERSION)
            described.topology_description_status = DescriptionStatus.AVAILABLE


def _back_off(group: StreamsGroup, now: Now) -> None:
    attempts = 1 if group.solicitation is None else group.solicitation.attempts + 1
    group.solicitation = Solicitation(attempts, now.monotonic_ms + PAUSES_MS.after(attempts))


def check_description(description: TopologyDescription) -> None:
    """Raises KafkaError(INVALID_REQUEST) for a description that contradicts itself."""
    _check_types(node for part in description.subtopologies for node in part.nodes)
    for store in description.global_stores:
        _check_types((store.source, store.processor))
        if (store.source.node_type, store.processor.node_type) != (NodeType.SOURCE, NodeType.PROCESSOR):
            raise _invalid("Global store must be composed of a source and a processor node.")


def _check_types(nodes: Iterable[TopologyDescriptionNode]) -> None:
    for node in nodes:
        if node.node_type not in (NodeType.SOURCE, NodeType.PROCESSOR, NodeType.SINK):
            raise _invalid(f"Unknown topology node type: {node.node_type}")


def _invalid(reason: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, reason)


def _failed(reason: str) -> KafkaError:
    return KafkaError(ErrorCode.STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED, reason)
