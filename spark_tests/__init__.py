"""Spark Structured Streaming against a broker: the real connector, on kwire and on Apache Kafka."""
