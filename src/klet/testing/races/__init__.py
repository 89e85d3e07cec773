"""Races: a victim works in a directory in which an attacker swaps names all the time.

    base/inside    where the victim works; the attacker writes here
    base/outside   sentinels: nothing here may be read, written, removed, or get another mode, owner or mount
    base/spare     the attacker's own place: links, pipes and hard links to swap with

The attacker moves between two calls of the victim, and then in a process of its own beside it (`race.Way`).
Victim and attacker are processes without privileges, so a victim that loses harms nothing but the sentinels.
"""
