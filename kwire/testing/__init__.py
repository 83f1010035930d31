"""A real broker inside the caller's process, for people who test their own Kafka code."""
