"""TLS: keys and certificates, the contexts made of them, and the transport of a connection."""
