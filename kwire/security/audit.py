"""The audit log: the requester, the operation, the resource and the decision. One line for each decision.

    denied: User:alice from 10.0.0.7 WRITE on topic 'orders' (Produce)
    {"time": "2026-01-31T12:00:00.000Z", "event": "authorization", "allowed": false, "principal": "User:alice", ...}

It has decisions on the resources that a request names, like Kafka's log kafka.authorizer.logger. Checks that only
filter a list are left out. Lines go to the logger `kwire.audit`. `write` may leave some out if there are too many, and
logs their number.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from datetime import UTC, datetime
from enum import Enum
from typing import Final

import attrs
from kwire_protocol.kafka_error import quoted

from kwire.security.authorizer import CLUSTER_NAME, Operation, ResourceType
from kwire.security.principal import Principal, Requester

MAX_TEXT_CHARS: Final = 300
"""The maximum length of a text in JSON; a client may send longer names."""

LOGGER: Final = logging.getLogger("kwire.audit")


class Audited(Enum):
    """The decisions that are logged; the values are those of kwire.audit.log."""

    NOTHING = "none"
    DENIED = "denied"
    EVERYTHING = "all"


def _log(level: int, line: str) -> None:
    LOGGER.log(level, "%s", line)


@attrs.define(eq=False)
class AuditLog:
    """Writes decisions to the audit log. `write` takes a logging level and a line."""

    audited: Audited
    as_json: bool
    now_ms: Callable[[], int]
    write: Callable[[int, str], None] = _log
    has_all: bool = attrs.field(init=False)
    """True if allowed operations are logged, too."""

    def __attrs_post_init__(self) -> None:
        self.has_all = self.audited is Audited.EVERYTHING

    def wants(self, *, allowed: bool) -> bool:
        return self.audited is Audited.EVERYTHING or (not allowed and self.audited is Audited.DENIED)

    def decided(
        self,
        requester: Requester,
        operation: Operation,
        resource_type: ResourceType,
        name: str,
        *,
        api: str,
        allowed: bool,
    ) -> None:
        """Logs an authorization. `api` is Kafka's name of the request."""
        if not self.wants(allowed=allowed):
            return
        if self.as_json:
            line = self._json(
                "authorization",
                allowed,
                requester.host,
                principal=str(requester.principal),
                operation=operation.name,
                resource_type=resource_type.name,
                resource_name=name,
                api=api,
            )
        else:
            what = f"{resource_type.name.lower().replace('_', ' ')}"
            if name != CLUSTER_NAME:
                what += f" {quoted(name)}"
            line = (
                f"{'allowed' if allowed else 'denied'}: {_principal_text(requester.principal)} from {requester.host} "
                f"may {'' if allowed else 'not '}{operation.name} on {what} ({api})"
            )
        self.write(logging.INFO, line)

    def authenticated(
        self, host: str, *, mechanism: str, listener: str, principal: Principal | None, reason: str | None = None
    ) -> None:
        """Logs an authentication. `principal` is None if it failed, for the given `reason`."""
        allowed = principal is not None
        if not self.wants(allowed=allowed):
            return
        if self.as_json:
            name = None if principal is None else str(principal)
            line = self._json(
                "authentication", allowed, host, principal=name, mechanism=mechanism, listener=listener, reason=reason
            )
        elif principal is not None:
            line = f"allowed: {_principal_text(principal)} from {host} has logged in with {mechanism} at {listener}"
        else:
            line = f"denied: a login from {host} with {mechanism} at {listener}: {reason}"
        self.write(logging.INFO, line)

    def _json(self, event: str, allowed: bool, host: str, **more: str | None) -> str:
        now = datetime.fromtimestamp(self.now_ms() / 1000, UTC)
        time = f"{now:%Y-%m-%dT%H:%M:%S}.{now.microsecond // 1000:03}Z"
        fields = {name: text and text[:MAX_TEXT_CHARS] for name, text in more.items()}
        return json.dumps({"time": time, "event": event, "allowed": allowed, "host": host, **fields})


def _principal_text(principal: Principal) -> str:
    text = str(principal)
    return text if text.isprintable() else quoted(text)
