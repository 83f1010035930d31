"""Kafka's SASL (KIP-43, KIP-152): mechanisms, and the authentication of a connection."""
