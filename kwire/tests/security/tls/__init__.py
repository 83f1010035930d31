"""Keys, certificates, contexts, and the transport of a connection with TLS."""
