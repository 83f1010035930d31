"""What a run found: the figures and their names, the goals, the tables."""
