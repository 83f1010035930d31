"""The disk, real or in memory, and what is held of it."""
