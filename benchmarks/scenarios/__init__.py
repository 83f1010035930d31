"""All scenarios; importing this package registers them, in the order of the list."""

from benchmarks.scenarios import raw, many, java_clients, tailing, groups, consumer_groups, loading, transactions  # noqa: F401, I001
from benchmarks.scenarios import compaction, lifecycle, metadata, storage, cluster, spark, pipeline, growth  # noqa: F401
