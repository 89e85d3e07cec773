"""Records what is wrong with a manifest: once for each change of it, and once when it is good again."""

import logging
from collections.abc import Container

from msgspec import Struct

from klet.model.causes import CauseId, CauseRecorder, FindingSubject
from klet.model.reasons import Reason
from klet.model.recording import DecisionRecorder

logger = logging.getLogger(__name__)


class Complaints:
    """The current errors, by the name of their file or URL."""

    def __init__(self, *, decider: str, recorder: CauseRecorder) -> None:
        self._decisions = DecisionRecorder(recorder, decider=decider)
        self._standing: dict[str, _Complaint] = {}

    def about(self, name: str, message: str, *, subject: FindingSubject, consequence: str, digest: str = "") -> None:
        """Record an error, unless it was recorded for the same content."""
        standing = self._standing.get(name)
        if standing is not None and (standing.digest, standing.message) == (digest, message):
            return
        logger.error("Manifest not used", extra={"error": message})
        cause = self._decisions.about(subject).record(
            Reason.MANIFEST_REJECTED, f"{message}; {consequence}", next_step="the manifest to be corrected"
        )
        self._standing[name] = _Complaint(digest=digest, message=message, subject=subject, cause=cause)

    def settle(self, name: str) -> None:
        """Record that a manifest is good again, or gone."""
        complaint = self._standing.pop(name, None)
        if complaint is None:
            return
        logger.info("Manifest no longer bad", extra={"error": complaint.message})
        text = "what was wrong with the manifest is corrected or gone"
        self._decisions.about(complaint.subject).record(Reason.MANIFEST_SETTLED, text, parent=complaint.cause)

    def settle_others(self, names: Container[str]) -> None:
        """Drop the errors of names that no longer exist."""
        for name in [name for name in self._standing if name not in names]:
            self.settle(name)


class _Complaint(Struct, frozen=True, kw_only=True):
    digest: str
    message: str
    subject: FindingSubject
    cause: CauseId
