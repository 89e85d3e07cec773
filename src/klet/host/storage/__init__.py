"""Storage of the machine: mount(8), filesystems on disks, SCSI devices, iSCSI sessions."""
