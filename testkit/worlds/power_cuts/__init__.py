"""The power is cut after every change of a trace, and what is left must keep the promises.

sweep.py, states.py            all states of a disk that may be left
history.py, checking.py        what was promised, and whether it holds
storage_trace(s).py            what a program does with logs; compacted.py, rotting.py
broker_trace(s).py             what a broker does; folds.py
transaction_trace(s).py        what a broker does with transactions; promises.py
caught.py                      whether a sweep shows a mistake
"""
