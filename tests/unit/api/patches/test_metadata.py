import json
import re
from pathlib import Path

from klet.api import (
    certificates,
    claim,
    config,
    container,
    container_status,
    meta,
    namespace,
    node,
    pod,
    resource,
    service,
    storage,
)
from klet.api.patches.metadata import MergeList, merge_list
from klet.api.schema import fields_of

TABLE = json.loads((Path(__file__).parents[3] / "data" / "kubernetes_objects.json").read_text(encoding="utf-8"))
MODULES = (
    certificates, claim, config, container, container_status, meta, namespace, node, pod, resource, service, storage,
)  # fmt: skip


def expected() -> dict[tuple[str, str], MergeList]:
    found = {}
    for name, fields in TABLE.items():
        for field, text in fields.items() if isinstance(fields, dict) else ():
            if mark := re.search(r"patch=(\S+)(?: key=(\S+))?", text):
                found[name.rsplit(".", 1)[1], field] = MergeList(mark[2] or "", retain_keys="retainKeys" in mark[1])
    return found


def test_merge_lists_and_keys_are_those_of_upstream():
    ours = {}
    for module in MODULES:
        for struct in vars(module).values():
            if isinstance(struct, type) and hasattr(struct, "__struct_fields__"):
                for field in fields_of(struct):
                    if strategy := merge_list(struct, field):
                        ours[struct.__name__, field] = strategy
    assert ours == expected()
