"""The brokers that are measured: one, or several that are one cluster; kwire or Apache Kafka."""
