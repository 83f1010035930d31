"""A whole cluster in one process, on a virtual clock, from one seed.

    calendar.py       virtual time: what happens when
    network.py        sockets between hosts, with delays, cuts and resets
    keeper.py         the ordered log and the lives, as a service that can be slow, cut off, and expire a session
    node.py           a broker with its disk: starts, stops, is killed, loses power
    clients.py        producers and readers, each of which writes down what it was promised; an operator
    groups.py         the group of a run, of one kind
    members.py        members that own partitions, of the classic and the consumer protocol
    streams_members.py  and of the streams protocol
    share_members.py  members that share partitions
    ledger.py         the promises, and whether they are kept
    deliveries.py     the promises to a share group
    history.py        what brokers have called committed, compared all the time
    faults.py         what goes wrong, drawn from the seed
    simulation.py     one run

Brokers are whole: `Server`, connections, fetchers, coordinators and chores are those of a process. In place of the
system they have a `Processor`, sockets, a disk, worker threads and a clock of the simulation. Nothing else is replaced.
"""
