"""Fast paths: short code for the requests that clients send most.

A fast path answers the plain case of one request: a Produce of one batch to one partition, a Fetch of one partition, a
heartbeat that changes nothing. It takes the values that it needs from the bytes of the frame, calls the same methods of
partitions and groups as the handler does, and packs the response around the few values in it. Everything else is the
handler's: a fast path that returns None has changed nothing.

Why a fast path decides nothing that the handler would decide otherwise:

1. It is made for a shape (`kwire.handlers.shapes`): a request that the handler's own code has decoded before. A frame
   of that shape is the same request but for its records, or its session epoch and its offset.
2. What could lead to another response is checked before anything changes, in the same turn and by the same attributes
   that the handler reads: the authorizer's decision, the replica and its role, the topic's rules, the batch, flushes
   that an append would have to wait for, the member's epoch. Nothing is remembered from one request to the next but
   constants of the shape. If a check fails, the handler repeats it, and finds the error.
3. From the change on the code is the handler's: `Partition.append`, `FetchSessions.advance`,
   `GroupService.confirm_consumer`. If an append raises an error, or a session's partition cannot be read, the handler's
   code makes the response.
4. The bytes of a response come from the generated messages: `templates.py` encodes one, and the fast path puts other
   values into it.

While any client has a quota, requests are decoded for `kwire.network.throttling`, and no fast path runs. A connection
that is not authenticated has none either. kwire.fast.paths.enable=false turns all of them off.

`testkit.fast_paths` compares a broker with fast paths to one without: the responses, the files, and the states.
"""
