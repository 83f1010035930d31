"""A real broker inside the caller's process, for testing code that uses Kafka.

    from kwire.testing import Broker

    with Broker() as broker:
        producer = KafkaProducer(bootstrap_servers=broker.address)

It is the broker that `kwire serve` runs, on a real socket and in its own thread. It starts in milliseconds on a free
port, keeps its data in memory unless you pass a folder, and leaves nothing behind. Several can run at the same time.
With pytest, the fixture `kwire_broker` starts one for each test (see `kwire.pytest_plugin`).

`Broker(users={"alice": "secret"}, tls=True)` requires authentication and encryption: clients connect with the security
protocol SASL_SSL, trust `broker.ca_file`, and log in by PLAIN or SCRAM.

`Cluster` is a cluster of several brokers, which may be killed, paused, restarted, and cut off from the others. Its
fixture is `kwire_cluster`.
"""

from kwire.config.definition import ConfigError
from kwire.node.running import BrokerEnded, StartError
from kwire.testing.broker import Broker
from kwire.testing.cluster import Cluster

__all__ = ["Broker", "BrokerEnded", "Cluster", "ConfigError", "StartError"]
