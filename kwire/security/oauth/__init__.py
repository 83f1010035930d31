"""Bearer tokens of OAuth 2, JSON Web Tokens (KIP-255, KIP-768): which are valid, and the keys to tell that."""
