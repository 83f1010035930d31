"""Decisions about configurations of topics, brokers and groups."""
