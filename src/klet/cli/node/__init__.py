"""The one-command node: preparing the machine, keeping the daemons alive, and leaving nothing behind."""
