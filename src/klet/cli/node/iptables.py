"""Plans which firewall rules to take away: those that CNI plugins wrote for one network and did not take back.

The plugins name the network in a comment of the rule that leads to a chain per container. The chains that all networks
of a host share go too, when the last klet node leaves and they were not there before the first one came.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct

SHARED_CHAINS = ("CNI-HOSTPORT-DNAT", "CNI-HOSTPORT-SETMARK", "CNI-HOSTPORT-MASQ")
_HUB = "CNI-HOSTPORT-DNAT"
_TARGET = re.compile(r"(?:^| )-[jg] (\S+)")


class Table(Struct, frozen=True):
    """One table of iptables-save: its chains, and its rules as written."""

    name: str
    chains: tuple[str, ...]
    rules: tuple[str, ...]


def parse_save(text: str) -> tuple[Table, ...]:
    """Read the output of iptables-save or ip6tables-save."""
    return tuple(_tables(text))


def shared_chains(tables: Sequence[Table]) -> frozenset[str]:
    """Return which of the chains that CNI networks share exist."""
    return frozenset(chain for table in tables for chain in table.chains if chain in SHARED_CHAINS)


def plan_cleanup(
    tables: Sequence[Table], *, network: str, keep: frozenset[str], own: frozenset[str] = frozenset()
) -> str:
    """Return the input of `iptables-restore --noflush` that removes a network's rules; empty when there are none.

    `keep` holds the shared chains that are not ours to remove, `own` the chains of sandboxes that are known: a plugin
    that was stopped half way leaves its chain without the rule that names the network.
    """
    return "".join(_cleanup_of(table, network=network, keep=keep, own=own) for table in tables)


def container_chains(network: str, containers: Iterable[str]) -> frozenset[str]:
    """Return the chains that the bridge and portmap plugins make for sandboxes; their names are a hash."""
    return frozenset(
        chain
        for container in containers
        for digest in (hashlib.sha512((network + container).encode()).hexdigest(),)
        for chain in (f"CNI-{digest[:24]}", f"CNI-DN-{digest[:21]}")
    )


def _cleanup_of(table: Table, *, network: str, keep: frozenset[str], own: frozenset[str]) -> str:
    comment = f'name: \\"{network}\\" '
    named = [rule for rule in table.rules if comment in rule]
    doomed = {target for rule in named if (target := _target(rule)) in table.chains and target not in SHARED_CHAINS}
    doomed |= {chain for chain in table.chains if chain in own}
    remaining = [rule for rule in table.rules if rule not in named and _chain(rule) not in doomed]
    if not any(_chain(rule) == _HUB for rule in remaining):
        doomed |= {chain for chain in table.chains if chain in SHARED_CHAINS and chain not in keep}
    deleted = [
        rule for rule in table.rules if (rule in named or _target(rule) in doomed) and _chain(rule) not in doomed
    ]
    if not deleted and not doomed:
        return ""
    chains = sorted(doomed)
    lines = [
        f"*{table.name}",
        *(f"-D{rule.removeprefix('-A')}" for rule in deleted),
        *(f"-F {chain}" for chain in chains),
        *(f"-X {chain}" for chain in chains),
        "COMMIT",
    ]
    return "\n".join(lines) + "\n"


def _tables(text: str) -> Iterator[Table]:
    name, chains, rules = "", list[str](), list[str]()
    for line in text.splitlines():
        match line[:1]:
            case "*":
                name, chains, rules = line[1:], [], []
            case ":":
                chains.append(line[1:].split()[0])
            case "-":
                rules.append(line)
            case _ if line == "COMMIT":
                yield Table(name=name, chains=tuple(chains), rules=tuple(rules))


def _chain(rule: str) -> str:
    return rule.split(maxsplit=2)[1]


def _target(rule: str) -> str:
    # The comment is quoted and comes before the target, so the last match is the target.
    found: list[str] = _TARGET.findall(rule)
    return found[-1] if found else ""
