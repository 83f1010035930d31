"""A Spark task's identity: its partition number and its query."""

from __future__ import annotations

from typing import Final

import attrs
from pyspark import TaskContext

from kwire.pipeline.spark_source.light_tasks import begin_task

_QUERY_ID: Final = "sql.streaming.queryId"
_RUN_ID: Final = "spark.jobGroup.id"  # a streaming query uses its run's id as the id of its job group


@attrs.frozen
class Task:
    partition: int
    attempt: int
    """The attempt for this part. Several may run at once, if Spark considers one of them too slow."""
    query_id: str | None
    """The id of a streaming query: the same after restarts."""
    run_id: str
    """The id of a streaming query's run: different after each restart."""


def this_task() -> Task:
    begin_task()
    context = TaskContext.get()
    if context is None:
        return Task(0, 0, None, "")
    return Task(
        partition=context.partitionId(),
        attempt=context.attemptNumber(),
        query_id=context.getLocalProperty(_QUERY_ID),
        run_id=context.getLocalProperty(_RUN_ID) or "",
    )
