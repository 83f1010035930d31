"""All scenarios; importing this package registers them, in the order of the list."""

from benchmarks.scenarios import raw, many, java_clients, tailing, groups, consumer_groups, share_groups  # noqa: F401, I001
from benchmarks.scenarios import loading, transactions, compaction, lifecycle, metadata, storage, cluster  # noqa: F401
from benchmarks.scenarios import security, spark, pipeline, growth  # noqa: F401
