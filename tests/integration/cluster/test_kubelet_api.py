"""Who may use the kubelet API of a node: tokens that the API server knows, and rights that it gives."""

import aiohttp
import pytest


@pytest.fixture
def ask(ready, node):
    """Asks the node itself: `await ask("/pods", token)` is the status and the text of the answer."""

    async def ask(path: str, token: str = "") -> tuple[int, str]:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(20)) as session,
            session.get(f"https://127.0.0.1:{node.port}{path}", headers=headers, ssl=False) as answer,
        ):
            return answer.status, await answer.text()

    return ask


@pytest.fixture
async def account(api):
    """Makes an account with rights to `nodes/<subresource>`, if any; gives its token."""

    async def make(name: str, *subresources: str) -> str:
        await api.kubectl("create", "serviceaccount", name)
        if subresources:
            resources = ",".join(f"nodes/{each}" for each in subresources)
            await api.kubectl("create", "clusterrole", name, "--verb=get", f"--resource={resources}")
            role, user = f"--clusterrole={name}", f"--serviceaccount=default:{name}"
            await api.kubectl("create", "clusterrolebinding", name, role, user)
        return (await api.kubectl("create", "token", name)).strip()

    return make


async def test_who_is_not_known(ask):
    assert await ask("/healthz") == (401, "Unauthorized")
    assert await ask("/healthz", "nonsense") == (401, "Unauthorized")


async def test_an_account_without_rights(ask, account):
    token = await account("nobody")
    user = "user=system:serviceaccount:default:nobody, verb=get, resource=nodes"
    assert await ask("/pods", token) == (403, f"Forbidden ({user}, subresource(s)=[pods proxy])\n")
    assert await ask("/containerLogs/a/b/c", token) == (403, f"Forbidden ({user}, subresource(s)=[proxy])\n")


async def test_an_account_with_one_right(ask, account):
    token = await account("reader", "pods")
    status, body = await ask("/pods", token)
    assert (status, body[:15]) == (200, '{"kind":"PodLis')
    assert (await ask("/runningpods/", token))[0] == 200
    assert (await ask("/configz", token))[0] == 403


async def test_an_account_that_may_do_what_the_api_server_may(ask, account):
    token = await account("proxy", "proxy")
    assert await ask("/healthz", token) == (200, "ok")
    assert await ask("/containerLogs/default/none/main", token) == (404, 'pod "none" does not exist')
