"""Credential provider plugins: programs that give registry logins for images (upstream: pkg/credentialprovider/plugin)."""
