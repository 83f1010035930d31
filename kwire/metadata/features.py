"""The cluster's features: the levels that this broker supports, and those of a new cluster (KIP-584, KIP-1022).

A feature's level is a FeatureLevelRecord of the metadata log, and UpdateFeatures changes it. Only features that kwire
serves are listed: not `kraft.version`, which Apache Kafka 4.3 has as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

METADATA_VERSION: Final = "metadata.version"
TRANSACTION_VERSION: Final = "transaction.version"
"""1: flexible records in `__transaction_state`; 2: KIP-890, a producer epoch of its own for each transaction."""

ELR_VERSION: Final = "eligible.leader.replicas.version"
"""1: KIP-966, see `controller/partitions/eligible_replicas.py`."""

GROUP_VERSION: Final = "group.version"
"""1: consumer groups of KIP-848."""

SHARE_VERSION: Final = "share.version"
"""1: share groups of KIP-932."""

STREAMS_VERSION: Final = "streams.version"
"""1: streams groups of KIP-1071."""

SUPPORTED_FEATURES: Final[Mapping[str, tuple[int, int]]] = {
    METADATA_VERSION: (7, 30),
    TRANSACTION_VERSION: (0, 2),
    ELR_VERSION: (0, 1),
    GROUP_VERSION: (0, 1),
    SHARE_VERSION: (0, 1),
    STREAMS_VERSION: (0, 1),
}
"""The lowest and highest level of each supported feature, as in Apache Kafka 4.3.1. Level 0 is a feature that is off.

metadata.version 30 is 4.3-IV0, the level whose record versions `records.py` writes.
"""

INITIAL_LEVELS: Final[Mapping[str, int]] = {name: highest for name, (_, highest) in SUPPORTED_FEATURES.items()}
"""The levels of a new cluster: the highest ones, as with Kafka's StorageTool."""

BEGUN_LATER: Final = frozenset({METADATA_VERSION, TRANSACTION_VERSION, GROUP_VERSION, SHARE_VERSION, STREAMS_VERSION})
"""The features that also get that level in the log dir of an earlier kwire, in which they have none.

Kafka treats a missing level as 0 until an administrator upgrades, since brokers of the earlier version may still run
together with the new one. kwire's earlier versions wrote nothing that these levels affect, and they read the record. A
feature that was set to 0 stays at 0. Eligible leader replicas are different: a cluster of an earlier version continues
without them.
"""
