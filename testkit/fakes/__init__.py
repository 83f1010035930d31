"""Brokers and services that answer what a test tells them to."""
