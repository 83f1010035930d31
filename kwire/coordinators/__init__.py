"""What the coordinators of groups and of transactions share: effects, timers, and the driver of their machines."""
