"""Members of kafka-python 3.0, which can also be cooperative."""

from __future__ import annotations

from typing import Any, ClassVar

import attrs
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor

from testkit.clients.groups.kafka_python import KafkaPython


@attrs.frozen
class NewerKafkaPython(KafkaPython):
    assignors: ClassVar[dict[str, Any]] = {
        **KafkaPython.assignors,
        "cooperative-sticky": CooperativeStickyAssignor,
    }
