"""One file for each API that kwire serves; `apis.py` is the table of them.

A handler is `def handle(*services, request, context) -> response`. It names the services that it uses, to which it is
bound once for each node (`apis.bound`). It turns each `KafkaError` into the error code of the partition, topic or
member that it concerns. Any other exception that leaves a handler is a bug, and closes the client's connection.

A handler that may have to wait is a coroutine function, or returns a coroutine, and awaits only futures
(`kwire.runtime.futures`).
"""
