"""Client quotas: the limits of users, client ids and addresses, and the throttle times of clients that exceed them.

    rates.py            a rate over samples, and a token bucket; the throttle time when one is exceeded
    entities.py         the precedence of quotas
    client_quotas.py    the usage of the clients of this broker
    mutations.py        the partitions that a request creates or deletes (KIP-599)
    connections.py      the rate of new connections (KIP-612), and their maximum number

Nothing here waits, or depends on connections. Replicas have quotas of their own: `kwire.replicas.quotas`.
"""
