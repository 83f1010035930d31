"""The disk, real or in memory, and its resources: open files, locks, reserved space."""
