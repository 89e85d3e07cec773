"""Startup, readiness and liveness probes (upstream: pkg/kubelet/prober, pkg/probe)."""
