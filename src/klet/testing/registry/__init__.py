"""Registries of images for tests: Debian's docker-registry on the loopback, its images, logins, tokens and faults."""
