"""Clients that others wrote, each behind a few functions of the same names."""
