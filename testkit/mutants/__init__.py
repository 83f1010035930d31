"""Deliberate mistakes, to see that a test finds them.

    changes.py     a mistake in this process, as long as a test lasts
    processes.py   a mistake of a broker in a process of its own
    lives.py       whether random lives of a machine show a mistake
    replays.py     mistakes of a restart that several rooms look for

The mistakes themselves are beside what finds them: `mistakes.py` in groups, share, worlds and kills.
"""
