"""Metrics of a running broker, in Prometheus' format: a read side over its services.

`metric.py` defines a metric. Each subject has a module with its metrics and a `read`, which reads from a service of the
broker: `coordinators.py`, `groups.py`, `shares.py`. `reading.py` lists the subjects; a new one goes there.
`endpoint.py` serves all of them over HTTP.

A service keeps plain numbers and adds to them where an event happens (`kwire/groups/counts.py`). Values that can be
counted at each request, such as groups by state, are counted here, in slices.

Names are those that Prometheus' JMX exporter derives from Kafka's, and begin with `kafka_`; metrics that Kafka does not
have begin with `kwire_`. docs/metrics.md lists all of them, and a test compares it with the code.
"""
