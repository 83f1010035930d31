"""The options of Spark's kafka source that jobs set, and those that are left to their users. Without Spark."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from kwire.pipeline.errors import PipelineError

# Spark's options are case-insensitive. Those that decide which records are read are set by the job.
_OWN: Final = frozenset(
    (
        "subscribe",
        "assign",
        "subscribepattern",
        "includeheaders",
        "failondataloss",
        "startingoffsets",
        "startingtimestamp",
        "startingoffsetsbytimestamp",
        "startingoffsetsbytimestampstrategy",
        "endingoffsets",
        "endingtimestamp",
        "endingoffsetsbytimestamp",
        "maxoffsetspertrigger",
        "minoffsetspertrigger",
        "maxtriggerdelay",
        "kafka.bootstrap.servers",
        "kafka.isolation.level",
    )
)
_CONSUMER_GROUP: Final = "kafka.group.id"
_SECRET: Final = re.compile(r"password|secret|jaas|\.key$|token|credential", re.IGNORECASE)


def check_source_options(given: Mapping[str, str]) -> None:
    """Raises PipelineError for options that are the job's own."""
    taken = sorted(name for name in given if name.lower() in _OWN)
    if taken:
        raise PipelineError(f"the job sets {', '.join(taken)} by itself; --option cannot")


def check_group(given: Mapping[str, str], instead: str) -> None:
    """Raises PipelineError if they name a consumer group. `instead` is the advice of the message."""
    if _CONSUMER_GROUP in given:
        raise PipelineError(f"Spark's readers are in no group; {instead}, not {_CONSUMER_GROUP}")


def source_options(bootstrap: str, topics: str, isolation: str, given: Mapping[str, str]) -> dict[str, str]:
    """Returns all options except the offsets. `topics` is one, or several with commas."""
    return {
        "kafka.bootstrap.servers": bootstrap,
        "kafka.isolation.level": isolation,
        "subscribe": topics,
        "includeHeaders": "true",
        # A deleted record must be reported, not skipped.
        "failOnDataLoss": "true",
        # If brokers are unreachable, Spark silently tries three times for a minute each. The job handles that better.
        "kafka.default.api.timeout.ms": "20000",
        "kafka.request.timeout.ms": "20000",
        "fetchOffset.numRetries": "1",
        # The connector requests a partition's first and last offset after each poll. With Kafka's default, 500 records
        # a poll, that takes a third of the reading time.
        "kafka.max.poll.records": "10000",
        **given,
    }


def shown_options(options: Mapping[str, str]) -> dict[str, str]:
    """Returns the options for --dry-run, without secrets."""
    return {name: "(not shown)" if _SECRET.search(name) else value for name, value in sorted(options.items())}
