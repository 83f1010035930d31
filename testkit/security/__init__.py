"""Certificates, logins and permissions; and a broker whose listeners are secured."""
