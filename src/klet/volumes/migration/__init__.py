"""Volumes of kinds that were once inside the kubelet, as those of the CSI drivers that have taken over. Pure."""
