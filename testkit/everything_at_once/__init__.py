"""A broker whose clocks run at their fastest, to which everything happens at the same time.

    run.py            one run: who is at work, what befalls them, the judgement
    under_test.py     the broker: its settings, its log, what it uses
    worker.py         processes of their own for the clients
    kept.py           topics that nothing is taken from, and the strict ledger of the SIGKILL loop
    keeper.py         topics that are made, changed, trimmed, moved and deleted; story.py tells what is in them
    transactor.py     transactional producers; transactions.py tells what must be seen of them
    vanishing.py      producers and members that are killed in the midst of it
    passers_by.py     connections that come and go, more of them than the broker may have
    tinker.py         moves between log dirs, and configurations, of topics that others write to
    races.py          races that are put in on purpose; watched.py starts a broker with one, or with a guard;
                      mistakes.py makes one after the other, and tells which are found

What the ledger promises is bounded by what was asked for: see `story.py`.
"""
