"""Bearer tokens of OAuth 2, JSON Web Tokens (KIP-255, KIP-768): their validation, and the keys for it."""
