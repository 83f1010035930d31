"""How the tests run: in groups, in several processes, and within budgets of CPU seconds."""
