"""The broker configurations of client quotas and of limits on connections."""

from __future__ import annotations

from typing import Final

from kwire.config.definition import table
from kwire.config.tables.rows import CLASS, CLUSTER_WIDE, INT, MAX_INT, STRING, row, row_without_effect
from kwire.config.validators import Admitted, CountsOfHosts, JavaClass, Range

QUOTA_CONFIGS: Final = table(
    row_without_effect("client.quota.callback.class", CLASS, None, JavaClass()),
    row(
        "controller.quota.window.num",
        INT,
        11,
        Range(1),
        "Partitions may be created and deleted in bursts: as many at once as the quota allows in so many samples.",
    ),
    row("controller.quota.window.size.seconds", INT, 1, Range(1), "The length of each of these samples."),
    row(
        "max.connection.creation.rate",
        INT,
        MAX_INT,
        Admitted(),
        "The most new connections in a second. A listener that gets more accepts none for a while.",
        CLUSTER_WIDE,
    ),
    row(
        "max.connections.per.ip.overrides",
        STRING,
        "",
        CountsOfHosts(),
        "Other values of max.connections.per.ip: an address, a colon and a number each, separated by commas.",
        CLUSTER_WIDE,
    ),
    row(
        "quota.window.num",
        INT,
        11,
        Range(1),
        "The number of samples over which the rates of client quotas are measured.",
    ),
    row("quota.window.size.seconds", INT, 1, Range(1), "The length of each of these samples."),
)
