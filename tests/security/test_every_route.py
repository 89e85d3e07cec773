"""Every path of the table of endpoints on a whole agent, all gates on: without credentials, and without its right.

The table is the only way to a route (`tests/unit/server/test_endpoints.py`), so a new one is asked for here by itself.
"""

import asyncio
import re

import pytest

from klet.embedded.identities import ApiUser
from klet.server.endpoint_types import EndpointGroup, ListenerKind, WithoutDebugging
from klet.server.endpoints import ENDPOINT_GROUPS

GATES = {"NodeLogQuery": True, "ComponentFlagz": True, "ComponentStatusz": True}
OFF = {"KubeletFineGrainedAuthz": False}
VALUES = {"namespace": "default", "pod": "web", "container": "main", "uid": "x", "path": "syslog", "profile": "cmdline"}
VERBS = {"GET": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
METHODS = (*VERBS, "HEAD", "OPTIONS")
WEBSOCKET_TOKEN = "base64url.bearer.authorization.k8s.io.bm9uc2Vuc2U"
AT_ONCE = 8
TOKEN = {"Authorization": "Bearer user-token"}


def paths_of(group: EndpointGroup) -> list[str]:
    """Those of its endpoints, and more below the root that none of them has."""
    found = [re.sub(r"{(\w+)(?::[^{}]*)?}", lambda name: VALUES[name[1]], path) for path in all_paths(group)]
    below = group.root.removesuffix("/")
    return [*found, *([f"{below}/", f"{below}/x/../y", f"{below}/a/b/c/d/e/f"] if group.is_tree else [])]


def all_paths(group: EndpointGroup) -> list[str]:
    return [path for endpoint in group.endpoints for path in endpoint.paths]


ROWS = [
    (group, method, path) for group in ENDPOINT_GROUPS for path in dict.fromkeys(paths_of(group)) for method in METHODS
]


class Rights:
    """What the user may do, set by the test; notes what is asked."""

    def __init__(self):
        self.allowed = lambda _verb, _subresource: False
        self.asked = []

    def allows(self, asked):
        wanted = asked.resource_attributes
        self.asked.append((asked.user, wanted.resource, wanted.name, wanted.verb, wanted.subresource))
        return self.allowed(wanted.verb, wanted.subresource)


def batched(rows, size):
    return [rows[begin : begin + size] for begin in range(0, len(rows), size)]


def right_of(group: EndpointGroup, method: str, *, is_fine_grained: bool = True) -> tuple[str, list[str]]:
    """What must be asked for: the verb, and each subresource that would be enough."""
    verb = "create" if group.right.is_create else VERBS.get(method, "")
    if not group.right.or_proxy:
        return verb, [group.right.subresource]
    return verb, [group.right.subresource, "proxy"] if is_fine_grained else ["proxy"]


class Walk:
    """An agent, and requests for all rows on a few connections."""

    def __init__(self, target, rights):
        self.target, self.rights = target, rights

    async def ask(self, rows, *, headers):
        """Return the statuses by method and path."""
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        answers = []
        for some in batched(rows, AT_ONCE):
            answers += await asyncio.gather(*(self._one(method, path, lines) for _, method, path in some))
        return dict(answers)

    async def _one(self, method, path, lines):
        connection = "Upgrade" if "Upgrade:" in lines else "close"
        head = f"{method} {path} HTTP/1.1\r\nHost: node\r\n{lines}Connection: {connection}\r\n\r\n"
        said = await self.target.send(head.encode(), who=None)
        return (method, path), int(said.split(b" ", 2)[1])


@pytest.fixture
def walking(attack):
    async def run(**gates):
        rights = Rights()
        target = await attack.on(cluster=True, tokens={"user-token": ApiUser("user")}, rights=rights)
        x509 = target.node.settings["authentication"]["x509"]
        # Nothing is remembered of an answer, so each row is asked for.
        keep = {"cacheAuthorizedTTL": "1ms", "cacheUnauthorizedTTL": "1ms"}
        target.node.settings |= {
            "authentication": {"anonymous": {"enabled": False}, "webhook": {"enabled": True}, "x509": x509},
            "authorization": {"mode": "Webhook", "webhook": keep},
            "featureGates": GATES | gates,
            "enableSystemLogQuery": True,
        }
        return Walk(target, rights)

    return run


async def test_no_row_is_answered_without_credentials_or_without_its_right(attack, walking):
    walk = await walking()
    async with attack.run(walk.target):
        for headers in (
            {},
            {"Authorization": "Bearer nonsense"},
            {"Authorization": "Basic YWRtaW46YWRtaW4=", "X-Remote-User": "admin"},
            {"Upgrade": "websocket", "Sec-WebSocket-Protocol": WEBSOCKET_TOKEN},
        ):
            rows = [row for row in ROWS if not headers or row[1] in {"GET", "POST"}]
            answers = await walk.ask(rows, headers=headers)
            assert {row: status for row, status in answers.items() if status != 401} == {}
        assert walk.rights.asked == []
        for row in ROWS:
            group, method, path = row
            verb, subresources = right_of(group, method)
            walk.rights.asked.clear()
            # Who has every other right of the node, with every verb, and this subresource with every other verb.
            walk.rights.allowed = lambda v, s, verb=verb, needed=subresources: s not in needed or v != verb
            [(asked, status)] = (await walk.ask([row], headers=TOKEN)).items()
            assert (asked, status) == ((method, path), 403)
            assert walk.rights.asked == [("user", "nodes", "node", verb, each) for each in subresources]


async def test_the_right_of_a_row_is_enough_for_it(attack, walking):
    walk = await walking()
    async with attack.run(walk.target):
        for row in [row for row in ROWS if row[1] in {"GET", "POST"}]:
            verb, subresources = right_of(row[0], row[1])
            for enough in subresources:
                walk.rights.allowed = lambda v, s, verb=verb, enough=enough: (v, s) == (verb, enough)
                [status] = (await walk.ask([row], headers=TOKEN)).values()
                assert (row[1:], status not in {401, 403}) == (row[1:], True)


async def test_without_fine_grained_rights_the_whole_node_is_needed(attack, walking):
    walk = await walking(**OFF)
    rows = [row for row in ROWS if row[0].right.or_proxy and row[1] == "GET"]
    async with attack.run(walk.target):
        walk.rights.allowed = lambda _verb, subresource: subresource != "proxy"
        answers = await walk.ask(rows, headers=TOKEN)
        assert {row: status for row, status in answers.items() if status != 403} == {}
        assert {each[-1] for each in walk.rights.asked} == {"proxy"}
        walk.rights.allowed = lambda _verb, subresource: subresource == "proxy"
        answers = await walk.ask(rows, headers=TOKEN)
        assert {row: status for row, status in answers.items() if status in {401, 403}} == {}


async def test_the_read_only_port_has_no_row_that_reads_logs_or_acts(attack, walking):
    walk = await walking()
    port = walk.target.read_only_port
    async with attack.run(walk.target, readOnlyPort=port):
        for group, method, path in ROWS:
            said = await walk.target.send(
                f"{method} {path} HTTP/1.1\r\nHost: n\r\nConnection: close\r\n\r\n".encode(), who=None, port=port
            )
            status = int(said.split(b" ", 2)[1])
            is_read = any(ListenerKind.READ_ONLY in group.listeners_of(endpoint) for endpoint in group.endpoints)
            if group.without_debugging is WithoutDebugging.REFUSED:
                assert (path, status) == (path, 405)
            elif not is_read:
                assert (path, status) == (path, 404)
            else:
                assert (path, status in {200, 404, 405}) == (path, True)
        acting = ("ExecSync", "Exec", "CheckpointContainer")
        assert [call for method in acting for call in walk.target.calls(method)] == []
