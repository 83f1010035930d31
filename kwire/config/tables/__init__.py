"""The configurations that there are, by subject: Kafka's names, types and defaults, and kwire's own."""
