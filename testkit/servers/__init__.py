"""Brokers in processes of their own: kwire and Apache Kafka."""
