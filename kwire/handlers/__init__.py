"""One file for each API that kwire serves; `kwire.apis` is the table of them.

A handler is `def handle(broker, request, context) -> response`. It decides with the help of the services on
`broker`, turns each `KafkaError` into the error code of the partition, topic or member it concerns, and lets nothing
else through: an exception that leaves a handler is a bug and costs the client its connection.

One that may have to wait is, or returns, a coroutine that awaits nothing but slots (`kwire.waits`).
"""
