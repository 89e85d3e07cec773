"""The three kinds of patches of the API, on plain objects, and how deep objects may be.

What is stored must be read, copied and sent again by functions that call themselves.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct

from klet.api.kinds import Kind
from klet.api.patches.errors import MissingMergeKey, PatchError
from klet.api.patches.json_patch import apply_json_patch
from klet.api.patches.merge_patch import apply_merge_patch
from klet.api.patches.strategic import apply_strategic_patch
from klet.embedded import refusals
from klet.embedded.store import Json

JSON_PATCH: Final = "application/json-patch+json"
MERGE_PATCH: Final = "application/merge-patch+json"
STRATEGIC_PATCH: Final = "application/strategic-merge-patch+json"
TYPES: Final = (JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH)
DEEPEST: Final = 200


def is_too_deep(data: Any) -> bool:
    """Look without calling itself, so that it copes with what it is to refuse."""
    layer = [data]
    for _ in range(DEEPEST):
        layer = [
            below
            for each in layer
            if isinstance(each, dict | list)
            for below in (each.values() if isinstance(each, dict) else each)
        ]
        if not layer:
            return False
    return True


class Patch(Struct, frozen=True):
    """A change, and how it is meant."""

    type: str
    body: bytes

    def apply(self, obj: Mapping[str, Any], kind: Kind) -> Json:
        """Return the object after the patch; raises RequestRefused."""
        try:
            change = msgspec.json.decode(self.body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise refusals.bad_request(f"error decoding patch: {error}") from error
        try:
            changed = self._change(obj, change, kind)
        except MissingMergeKey as error:
            raise refusals.internal(str(error)) from error
        except (PatchError, RecursionError) as error:
            raise refusals.rejected_patch() from error
        if not isinstance(changed, dict) or not isinstance(changed.get("metadata"), dict) or is_too_deep(changed):
            raise refusals.rejected_patch()
        return changed

    def _change(self, obj: Mapping[str, Any], change: Any, kind: Kind) -> Any:
        if self.type == JSON_PATCH:
            if not isinstance(change, list):
                raise refusals.bad_request("a JSON patch is a list of operations")
            return apply_json_patch(obj, change)
        if not isinstance(change, dict):
            raise refusals.bad_request("a patch is an object")
        if self.type == MERGE_PATCH:
            return apply_merge_patch(obj, change)
        return apply_strategic_patch(obj, change, kind.struct)
