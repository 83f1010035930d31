"""Helpers for every other room, which do not depend on a broker."""
