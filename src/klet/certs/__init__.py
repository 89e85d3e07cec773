"""Keys and certificates: what to request, when, where to store them. Only `klet.certs.child` imports cryptography."""
