"""An answer, not a failure: what a handler or a state machine raises to have a Kafka error code sent to the
client."""

from __future__ import annotations

from kwire_protocol.errors import ErrorCode


class KafkaError(Exception):
    """To be caught at the granularity the protocol has: per partition, per topic, per member, or the whole response."""

    def __init__(self, code: ErrorCode, message: str | None = None) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message

    def __str__(self) -> str:
        return self.code.name if self.message is None else f"{self.code.name}: {self.message}"
