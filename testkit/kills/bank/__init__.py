"""A bank whose tellers and whose broker are killed again and again, and in which money is neither made nor lost.

    books.py     the orders, and the bookings that must be seen of them: pure, tests pass it numbers
    teller.py    a process that takes orders and books both halves of each, exactly once: consume, transform, produce
    tellers.py   the processes: started, killed, frozen and woken, each followed by its heir
    auditor.py   the reader of their bookings, read_committed
    scenario.py  a lap: orders, kills, then everything stops and is compared with the books
    cluster.py   the same over three nodes

An order moves an amount between two accounts, which are in different partitions. A transaction of a teller has two
records for each of some orders, and the offset after them. A reader with read_committed must see both halves of every
order, once, or else the sum of all accounts has changed. It must not wait for them longer than a transaction may take.

A teller has partitions of its own and a transactional id of its own, and its heir has the same: the broker fences the
elder, so the two do not both write. Groups whose members come and go are tested by test_streams.py.
"""
