"""The labels and annotations by which CRI objects are found again, exactly as upstream writes them."""

POD_NAME = "io.kubernetes.pod.name"
POD_NAMESPACE = "io.kubernetes.pod.namespace"
POD_UID = "io.kubernetes.pod.uid"
CONTAINER_NAME = "io.kubernetes.container.name"
TERMINATION_GRACE_PERIOD = "io.kubernetes.pod.terminationGracePeriod"
