"""The configuration of brokers."""

from __future__ import annotations

from collections.abc import Sequence

from kwire_protocol.kafka_error import quoted
from kwire_protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource

from kwire.client.cluster import Cluster
from kwire.client.errors import refused

_BROKER = 4
"""The type of a broker as a resource of DescribeConfigs."""


def broker_configs(cluster: Cluster, names: Sequence[str]) -> dict[str, str | None]:
    """Returns the values of these configurations at one of the brokers. Raises Refused.

    A name that the broker does not have is missing. A value that it does not report is None.
    """
    node_id = cluster.node_ids()[0]
    resource = DescribeConfigsResource(_BROKER, str(node_id), list(names))
    [result] = cluster.call(DescribeConfigsRequest([resource]), node_id=node_id, at_least=1).results
    if result.error_code:
        what = f"the configuration of broker {quoted(str(node_id))} cannot be read"
        raise refused(what, result.error_code, result.error_message)
    return {it.name: it.value for it in result.configs}
