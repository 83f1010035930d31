"""All scenarios; importing this package registers them, in the order of the list."""

from benchmarks.scenarios import raw, many, java_clients, tailing, groups, lifecycle, storage, spark, growth  # noqa: F401, I001
