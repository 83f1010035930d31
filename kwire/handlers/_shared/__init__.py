"""Helpers that several handlers share."""
