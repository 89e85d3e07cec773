"""Kubernetes Events, made from cause records."""
