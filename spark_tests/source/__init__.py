"""The format kwire beside the format kafka: both run the same queries, and the results are compared."""
