"""A client of Kafka clusters, and a small one: what kwire's own commands and pipelines need, and a broker that asks
another.

* `connection.py`: one broker, several requests in flight, for a thread that blocks
* `async_connection.py`: the same for tasks of trio
* `exchange.py`: what these two share; `errors.py`: what they raise, a sentence each; `transport.py`: the sockets

What stands on the blocking one:

* `cluster.py`: all brokers, each connected to when it is first asked; leaders and coordinators looked up
* `offsets.py`: where partitions begin and end
* `fetching.py`: records of a partition, from an offset to an offset; `committed.py`: what of them is committed
* `groups.py`: what groups have committed
* `topics.py`: topics made, and their configurations
* `producing.py`: batches written once, with and without transactions; `producer_state.py`: what that takes
* `waiting.py`: where time comes in

A `Cluster` and what it hands out belong to one thread. None of it knows the server, which may ask other brokers over
`async_connection.py` only.
"""
