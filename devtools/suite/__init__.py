"""The running of the tests: in groups, in several processes, and within budgets of CPU seconds."""
