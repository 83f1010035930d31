"""Decisions about security and quotas: ACLs, SCRAM users, delegation tokens, client quotas."""
