"""Principals and their permissions."""
