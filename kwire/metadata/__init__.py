"""The cluster's metadata: topics, partitions, configurations, brokers, features, producer ids.

All of it is a fold over one ordered log of Kafka's metadata records. `records` frames them, `log` stores them, `image`
is the resulting state, the `controller` modules turn requests into records, and `service` ties everything together.
"""
