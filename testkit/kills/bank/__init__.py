"""A bank whose tellers and whose broker are killed again and again, and in which money is neither made nor lost.

    books.py     what was ordered, and what must be seen of it: pure, tests hand it numbers
    teller.py    a process that takes orders and books both halves of each, exactly once: consume, transform, produce
    tellers.py   the processes: started, killed, frozen and woken, each followed by its heir
    auditor.py   who reads what they have booked, read_committed
    scenario.py  a lap: orders, kills, then everything comes to rest and is held against the books
    cluster.py   the same over three nodes

An order moves an amount between two accounts, which lie in different partitions. A transaction of a teller has two
records for each of some orders, and the offset behind them. Who reads read_committed must come to see both halves of
every order, once, or else the sum of all accounts is not what it was; and must not wait for them longer than a
transaction may take.

A teller has partitions of its own and a transactional id of its own, and its heir has the same: what keeps two of them
apart is that the broker fences the elder. What a group does beside that, when its members come and go, is seen by
test_streams.py.
"""
