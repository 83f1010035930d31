"""A broker whose clocks run at their fastest, under all operations and faults at the same time.

    run.py            one run: the clients, the faults, the checks
    under_test.py     the broker: its settings, its log, its resources
    worker.py         processes for the clients
    kept.py           topics without deletions, and the strict ledger of the SIGKILL loop
    keeper.py         topics that are created, changed, trimmed, moved and deleted; story.py has their records
    transactor.py     transactional producers; transactions.py has the records that must be seen of them
    vanishing.py      producers and members that are killed at work
    passers_by.py     connections that are opened and closed, more of them than the broker may have
    tinker.py         moves between log dirs, and configurations, of topics that others write to
    races.py          races that are put in on purpose; watched.py starts a broker with one, or with a guard;
                      mistakes.py makes one after the other, and reports which are found

The promises of the ledger depend on the requested configurations: see `story.py`.
"""
