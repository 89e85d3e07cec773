"""The annotations by which kubelets know a static pod and its mirror."""

from typing import Final

SOURCE_ANNOTATION: Final = "kubernetes.io/config.source"
MIRROR_ANNOTATION: Final = "kubernetes.io/config.mirror"
SEEN_ANNOTATION: Final = "kubernetes.io/config.seen"
HASH_ANNOTATION: Final = "kubernetes.io/config.hash"
