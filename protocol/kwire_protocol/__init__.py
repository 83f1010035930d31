"""The Kafka protocol as values: bytes in, typed messages out. No I/O, no clock."""
