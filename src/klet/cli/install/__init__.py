"""`klet install` and `klet uninstall`: a node, or klet as the kubelet of a cluster, started at boot by systemd."""
