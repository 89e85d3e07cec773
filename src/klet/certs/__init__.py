"""Keys and certificates: what to ask for, when, where they lie. Only `klet.certs.child` imports cryptography."""
