"""Traces for OpenTelemetry; imported only on a node whose configuration has `tracing`."""
