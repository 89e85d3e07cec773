"""Credential provider plugins: programs that give registry logins (upstream: pkg/credentialprovider/plugin)."""
