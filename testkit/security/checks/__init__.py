"""Every check of security, broken on purpose one at a time, has to turn a test red.

    .venv/bin/python -m testkit.security.checks [TEXT]...     break those whose names have that text; or all

`finding.py` finds the checks in the code and breaks one, `breaking.py` does so while tests run, and `rooms.py` lists
what is looked through, by which tests, and which checks no test can see.
"""
