"""Decisions on who may come in and what they may do: ACLs, credentials, tokens, quotas."""
