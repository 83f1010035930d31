"""Spark's tables and streams on a broker, and the jobs of the pipeline."""
