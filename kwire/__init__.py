"""kwire: a Kafka broker in Python, on trio, with Kafka's own protocol and Kafka's own bytes on disk."""

__version__ = "0.1.0"
