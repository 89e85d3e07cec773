"""iSCSI disks: their names, the commands of iscsiadm, logging in and out (upstream: pkg/volume/iscsi)."""
