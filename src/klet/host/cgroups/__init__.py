"""Control groups: names, the two kernel versions, and the cgroupfs and systemd drivers (upstream's cgroup manager)."""
