"""What the cluster knows of itself: topics, partitions, configurations, brokers, features, producer ids.

All of it is a fold over one ordered log of Kafka's metadata records: `records` frames them, `log` keeps them, `image`
is their sum, the `controller` modules decide which records a request turns into, `service` ties it together.
"""
