"""A real broker inside the caller's process, for people who test their own Kafka code.

    from kwire.testing import Broker

    with Broker() as broker:
        producer = KafkaProducer(bootstrap_servers=broker.address)

It is the broker that `kwire serve` runs, on a real socket, in a thread of its own; it starts in milliseconds, on a
free port, keeps its data in memory unless it is given a folder, and leaves nothing behind. Several live side by side.
With pytest, the fixture `kwire_broker` gives one for each test (see `kwire.pytest_plugin`).
"""

from kwire.testing.broker import Broker

__all__ = ["Broker"]
