"""Defaults that the API server applies to pods when it decodes them."""

from klet.api.defaults.pod import default_pod

__all__ = ["default_pod"]
