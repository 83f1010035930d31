"""A Java process for Kafka's clients and tools, and our programs that run in it."""
