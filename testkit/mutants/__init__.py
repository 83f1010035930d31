"""Deliberate mistakes, to check that a test finds them.

    changes.py     a mistake in this process, as long as a test lasts
    processes.py   a mistake of a broker in a process of its own
    lives.py       checks that random lives of a machine show a mistake
    replays.py     mistakes of a restart that several rooms must find

The mistakes themselves are in the packages that find them: `mistakes.py` in groups, share, worlds and kills.
"""
