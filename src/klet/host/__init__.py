"""Port to the machine: cgroups, mounts, procfs, inotify, kernel messages."""
