"""A client of Kafka clusters, blocking and small: what kwire's own commands and pipelines need of one.

* `connection.py`: one broker, several requests in flight
* `cluster.py`: all brokers, each connected to when it is first asked; leaders and coordinators looked up
* `offsets.py`: where partitions begin and end
* `fetching.py`: records of a partition, from an offset to an offset; `committed.py`: what of them is committed
* `groups.py`: what groups have committed
* `topics.py`: topics made, and their configurations
* `producing.py`: batches written once, with and without transactions; `producer_state.py`: what that takes
* `errors.py`: what it raises, a sentence each
* `transport.py`, `waiting.py`: where sockets and time come in

A `Cluster` and what it hands out belong to one thread. It knows nothing of the server, and the server nothing of it.
"""
