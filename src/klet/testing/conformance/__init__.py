"""Upstream's end-to-end suite against klet or the kubelet of upstream (see scripts/conformance)."""
