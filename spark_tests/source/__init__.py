"""The format kwire beside the format kafka: the same questions to both, and the answers compared."""
