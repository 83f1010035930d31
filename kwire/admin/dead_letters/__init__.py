"""The dead letters of share groups (KIP-1191): lists them, and sends their records again.

* `letters.py`: a letter as a value, a selection of letters, and reading them
* `topics.py`: which topics are dead-letter topics, and how many letters they have
* `originals.py`: the records that letters refer to
* `redriven.py`: which letters were sent already
* `redriving.py`: sends records again, each once
"""
