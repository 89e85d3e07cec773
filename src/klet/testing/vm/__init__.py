"""Virtual machines for tests (`scripts/vm`): a small one that boots in seconds, and a whole Debian with systemd."""
