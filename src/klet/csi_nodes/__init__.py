"""The CSI drivers of this node: their registration, and what the Node and CSINode objects say of them (upstream: the
CSI plugin's registration handler and the node info manager).
"""
