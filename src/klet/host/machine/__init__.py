"""The machine: what it is (facts) and what it does right now (measurements), read by one port.

- `info`: the facts, as immutable values. `MachineInfo` is read once, `SystemVersions` for each use.
- `reader`: reads the facts.
- `cache`: keeps what is read once; all parts of the agent share it.
- `usage`: the measurements, such as free memory and load, and their reader. Nothing of them is kept.
"""
