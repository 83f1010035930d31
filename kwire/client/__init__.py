"""A small client for Kafka clusters, for kwire's own commands and pipelines, and for requests between brokers.

* `connection.py`: one broker, several requests in flight, for a thread that blocks
* `async_connection.py`: the same for tasks of trio
* `exchange.py`: the common part of both; `errors.py`: their errors, a sentence each; `transport.py`: the sockets

Built on the blocking connection:

* `cluster.py`: all brokers, each connected to at the first request; finds leaders and coordinators
* `offsets.py`: the first and last offsets of partitions
* `fetching.py`: records of a partition, from an offset to an offset; `committed.py`: which of them are committed
* `groups.py`: committed offsets of groups
* `topics.py`: creates topics, and reads and sets their configurations
* `producing.py`: batches written exactly once, with and without transactions; `producer_state.py`: its state machine
* `waiting.py`: the clock, and retries

A `Cluster` and everything it returns belong to one thread. The client does not depend on the server. The server uses
only `async_connection.py`, for requests to other brokers, and the modules that it imports.
"""
