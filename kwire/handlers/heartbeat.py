"""Heartbeat: v0-4.

* v1: throttle_time_ms
* v3: group_instance_id (KIP-345)
* v4: flexible
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse

if TYPE_CHECKING:
    from kwire.broker import Broker
    from kwire.context import Context


def handle(broker: Broker, request: HeartbeatRequest, context: Context) -> HeartbeatResponse:
    try:
        return broker.groups.heartbeat(request)
    except KafkaError as error:
        return HeartbeatResponse(error_code=error.code)
