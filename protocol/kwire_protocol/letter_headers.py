"""The headers of a dead letter (KIP-1191): which record a share group gave up, and why. All values are text.

The names are those of Kafka 4.4's ShareGroupDLQStateManager. Numbers are decimal.
"""

from __future__ import annotations

from typing import Final

PREFIX: Final = "__dlq.errors."

ORIGIN_TOPIC: Final = f"{PREFIX}topic"
ORIGIN_PARTITION: Final = f"{PREFIX}partition"
ORIGIN_OFFSET: Final = f"{PREFIX}offset"
"""These three say where the record is that failed."""
GROUP: Final = f"{PREFIX}group"
"""The share group that gave it up."""
DELIVERY_COUNT: Final = f"{PREFIX}delivery.count"
"""How often it was delivered."""
MESSAGE: Final = f"{PREFIX}message"
"""Why it was given up."""
