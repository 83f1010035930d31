"""The shared parts of coordinators: effects, timers, and the driver of their machines."""
