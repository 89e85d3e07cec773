"""Says what is wrong with a manifest: once for each change of it, and once more when it is well again."""

import logging
from collections.abc import Container
from dataclasses import dataclass

from klet.model.causes import CauseId, CauseRecorder, Finding, Subject

logger = logging.getLogger(__name__)


class Complaints:
    """The complaints that stand, by the name of what they are about."""

    def __init__(self, *, decider: str, recorder: CauseRecorder) -> None:
        self._decider = decider
        self._recorder = recorder
        self._standing: dict[str, _Complaint] = {}

    def about(self, name: str, message: str, *, subject: Subject, consequence: str, digest: str = "") -> None:
        """Complain, unless the same was said about the same content."""
        standing = self._standing.get(name)
        if standing is not None and (standing.digest, standing.message) == (digest, message):
            return
        logger.error("Manifest not used", extra={"error": message})
        cause = self._recorder.record(
            Finding(
                subject=subject,
                decider=self._decider,
                decision="ManifestRejected",
                message=f"{message}; {consequence}",
                next="the manifest to be corrected",
            )
        )
        self._standing[name] = _Complaint(digest=digest, message=message, subject=subject, cause=cause)

    def settle(self, name: str) -> None:
        """What was complained about is good again, or gone."""
        complaint = self._standing.pop(name, None)
        if complaint is None:
            return
        logger.info("Manifest no longer bad", extra={"error": complaint.message})
        finding = Finding(
            subject=complaint.subject,
            decider=self._decider,
            decision="ManifestSettled",
            message="what was wrong with the manifest is corrected or gone",
        )
        self._recorder.record(finding, parent=complaint.cause)

    def settle_others(self, names: Container[str]) -> None:
        """Only these names still exist."""
        for name in [name for name in self._standing if name not in names]:
            self.settle(name)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Complaint:
    digest: str
    message: str
    subject: Subject
    cause: CauseId
