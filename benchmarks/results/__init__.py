"""The results of a run: the figures and their names, the goals, the tables."""
