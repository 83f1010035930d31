"""kwire: a Kafka broker in Python, on trio, with Kafka's protocol and Kafka's on-disk format."""

__version__ = "0.1.0"
