"""Brokers and services that give the answers of a test."""
