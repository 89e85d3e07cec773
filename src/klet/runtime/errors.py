"""Why a pod or container could not be brought up, with the reason that users see.

RuntimeFailure              reason and message for events and waiting states
├── SandboxConfigError      the sandbox cannot be described to the runtime
├── SandboxFailed           there is no sandbox to start in
└── StartError              one container could not be started (its reason says at which step)
    ├── ImageMissing        its image is not there
    ├── StartBackedOff      it was not even tried: too soon after the last failure
    └── PostStartFailed     it ran, but its postStart hook failed and it was killed
"""

from datetime import datetime

from klet.errors import KletError
from klet.model.foreign_text import shorten

INVALID_IMAGE_NAME = "InvalidImageName"
ERR_IMAGE_PULL = "ErrImagePull"
ERR_IMAGE_NEVER_PULL = "ErrImageNeverPull"
IMAGE_PULL_BACKOFF = "ImagePullBackOff"
IMAGE_INSPECT_ERROR = "ImageInspectError"
CREATE_CONFIG_ERROR = "CreateContainerConfigError"
CREATE_CONTAINER_ERROR = "CreateContainerError"
RUN_CONTAINER_ERROR = "RunContainerError"
POST_START_HOOK_ERROR = "PostStartHookError"
CRASH_LOOP_BACKOFF = "CrashLoopBackOff"
IMAGE_VOLUME_MOUNT_FAILED = "ImageVolumeMountFailed"


class RuntimeFailure(KletError):
    """Something about a pod failed, and its user should see why."""

    reason = "Failed"


class SandboxConfigError(RuntimeFailure):
    """The sandbox cannot be described to the runtime."""

    reason = "CreatePodSandboxError"


class SandboxFailed(RuntimeFailure):
    """There is no sandbox to start in: the action that failed, its target, and when to retry."""

    def __init__(self, action: str, target: str, message: str, *, until: datetime | None = None) -> None:
        self.message = shorten(message)
        super().__init__(self.message)
        self.action = action
        self.target = target
        self.until = until


class StartError(RuntimeFailure):
    """One container could not be started; `until` is when to retry, if known."""

    def __init__(self, reason: str, message: str, *, until: datetime | None = None) -> None:
        self.message = shorten(message)
        super().__init__(self.message)
        self.reason = reason
        self.until = until

    @property
    def shown(self) -> str:
        """The message of the Event."""
        return self.message


class ImageMissing(StartError):
    """A container whose image is missing; the image manager has recorded why."""

    @property
    def shown(self) -> str:
        return self.reason


class StartBackedOff(StartError):
    """A start that waits because the one before failed."""

    def __init__(self, reason: str, message: str, *, until: datetime) -> None:
        super().__init__(reason, message, until=until)


class PostStartFailed(StartError):
    """A container that started and was killed, because its postStart hook failed."""

    def __init__(self, message: str) -> None:
        super().__init__(POST_START_HOOK_ERROR, message)
