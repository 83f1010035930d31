"""Unmodified clients against a broker: the same tests on kwire and on Apache Kafka."""
