"""Principals, their authentication and their rights.

The life of a login:

1. `network/server.py` accepts a socket, within the limits of `quotas/connections.py`. The listener's `ListenerSecurity`
   (`network/listener_security.py`) makes the transport, and with SASL a `SaslSession`. A PLAINTEXT listener has no such
   object, and loads none of this.
2. With TLS the connection is SHAKING (`network/states.py`) until `TlsTransport.handshake` is done
   (`runtime/tls_transport.py`). `tls/principals.py` makes the principal of a client's certificate by the mapping rules.
   A timer closes the connection if TLS and SASL take longer than kwire.authentication.timeout.ms.
3. With SASL `Unauthenticated` (`network/authentication.py`) decodes the requests of a peer before its login: another,
   smaller table of APIs, and small frames. So requests after the login cost nothing more.
4. `handlers/sasl_handshake.py` begins an exchange of the mechanism that the client names.
   `handlers/sasl_authenticate.py` passes it the client's bytes (`sasl/exchange.py`). A mechanism (`plain.py`,
   `scram.py`, `oauthbearer.py`) is a pure machine: bytes and time in, a challenge or a principal out. The users of
   SCRAM and the delegation tokens are in the metadata image (`metadata/access.py`), those of PLAIN in the
   configuration. A worker fetches the keys of OAUTHBEARER (`network/jwks.py`). The response to a failed login is
   delayed, and then the connection closes.
5. From then on the connection decodes with the whole table. `context.requester` is the principal and the client's
   address. If the login lasts for a limited time, `Lasting` compares the time with each request. After the end the peer
   may log in again as the same principal, and do nothing else.
6. Before a handler looks anything up, it calls `handlers/authorization.py`, which calls the authorizer: `AllowAll`, or
   `acls/standard_authorizer.py`, which has an index of the image's ACLs and caches decisions until an ACL changes.
   Decisions and logins go to `audit.py`.
"""
