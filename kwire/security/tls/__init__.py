"""TLS: keys and certificates, the contexts made of them, and the reasons for failed handshakes."""
