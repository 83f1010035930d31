"""The log: segments on disk in Kafka's format. Synchronous, no clock of its own."""
