"""All scenarios; importing this package registers them, in the order of the list."""

from benchmarks.scenarios import raw  # noqa: F401
