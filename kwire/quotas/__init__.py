"""Client quotas: how much each user, client id and address may take, and how long those wait who took more.

    rates.py            a rate over samples, and a bucket of tokens; when one is exceeded, and for how long
    entities.py         which quota is for whom
    client_quotas.py    what the clients of this broker have taken
    mutations.py        the partitions that a request creates or deletes (KIP-599)
    connections.py      new connections (KIP-612), and how many there may be

Nothing here waits, or knows connections. Replicas have quotas of their own: `kwire.replicas.quotas`.
"""
