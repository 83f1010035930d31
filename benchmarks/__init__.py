"""Measurements, never tests: nothing here asserts a time."""
