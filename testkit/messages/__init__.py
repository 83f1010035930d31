"""A value of each message, records, and Kafka's own judgement of both (in Java)."""
