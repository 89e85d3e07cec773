"""TLS on the server's side: the handshake, the certificate that is served, and what is asked of clients."""
