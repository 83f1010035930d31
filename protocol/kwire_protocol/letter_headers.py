"""The headers of a dead letter (KIP-1191): the record that a share group gave up, and the reason. All values are text.

The names are those of Kafka 4.4's ShareGroupDLQStateManager. Numbers are decimal.
"""

from __future__ import annotations

from typing import Final

PREFIX: Final = "__dlq.errors."

ORIGIN_TOPIC: Final = f"{PREFIX}topic"
ORIGIN_PARTITION: Final = f"{PREFIX}partition"
ORIGIN_OFFSET: Final = f"{PREFIX}offset"
"""The topic, partition and offset of the record that failed."""
GROUP: Final = f"{PREFIX}group"
"""The share group that gave it up."""
DELIVERY_COUNT: Final = f"{PREFIX}delivery.count"
"""The number of times that it was delivered."""
MESSAGE: Final = f"{PREFIX}message"
"""The reason why it was given up."""
