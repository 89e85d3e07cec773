"""Which images the agent has pulled, with whose credentials, and which pods may use them (image pull manager).

`records` is what other parts use; `format` and `files` are its files, `verification` its rules, both as upstream's.
"""
