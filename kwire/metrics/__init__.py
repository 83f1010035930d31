"""Numbers about a running broker, in Prometheus' format: a read side over its services.

`metric.py` says what a metric is. Each subject has a module with its metrics and a `read`, which asks a service of the
broker: `coordinators.py`, `groups.py`, `shares.py`. `reading.py` lists the subjects; a new one goes there.
`endpoint.py` serves all of them over HTTP.

A service keeps plain numbers and adds to them where something happens (`kwire/groups/counts.py`). What can be counted
when it is asked for, such as groups by state, is counted here, in slices.

Names are what Prometheus' JMX exporter makes of Kafka's, and begin with `kafka_`; what Kafka does not have begins with
`kwire_`. docs/metrics.md lists all of them, and a test compares it with the code.
"""
