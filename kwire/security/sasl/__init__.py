"""SASL, as Kafka has it (KIP-43, KIP-152): mechanisms, and the conversation of a connection about who it is."""
