"""Where the code removes, replaces or empties files, and why nobody else's files are lost there.

`tests/unit/test_removals_in_source.py` finds every such function. Each is tested by places of
`tests/integration/volumes/test_deletions.py`, where somebody's filesystem is mounted, or it says why it needs no test:
it makes what it removes itself, or works on what is no file of a disk.
"""

from collections.abc import Mapping
from typing import Final

from msgspec import Struct


class Removal(Struct, frozen=True):
    """What is known of one function."""

    tested: tuple[str, ...] = ()
    """Names of places."""
    harmless: str = ""
    """Why it needs no place."""


def _in(*places: str) -> Removal:
    return Removal(tested=places)


def _because(reason: str) -> Removal:
    return Removal(harmless=reason)


_ONE_FILE: Final = _in("one file")
_TREE: Final = _in("a tree")
_SCRATCH: Final = _in("a scratch directory")
_OWN_STAGING: Final = _because("renames a file that it has just written; the kernel replaces no mount point")
_ASKS: Final = _because("only asks LogFiles, which is tested")
_EMPTY: Final = _because("only asks remove_empty_below, which is tested")
_KERNEL_FILE: Final = _because("writes a file of the kernel")

REMOVALS: Final[Mapping[str, Removal]] = {
    "certs/bootstrap.py:Bootstrap.obtain": _ONE_FILE,
    "certs/serving.py:_move": _OWN_STAGING,
    "certs/serving.py:_set_torn_aside": _because("renames; the kernel renames no mount point, and nothing over one"),
    "certs/store.py:PairStore._finish_update": _because("renames a link; nothing can be mounted on a link"),
    "certs/store.py:PairStore._point_to": _because("removes a link; nothing can be mounted on a link"),
    "certs/store.py:PairStore.update": _ONE_FILE,
    "checkpoint/file.py:CheckpointFile._set_aside": _in("a damaged checkpoint"),
    "cli/install/boot.py:_take_over": _ONE_FILE,
    "cli/install/installer.py:Installer.remove": _ONE_FILE,
    "cli/install/installer.py:_link": _OWN_STAGING,
    "cli/install/installer.py:_remove": _ONE_FILE,
    "cli/node/host_ledger.py:HostLedger.close": _TREE,
    "cli/node/host_ledger.py:HostLedger.leave": _ONE_FILE,
    "cli/node/identities.py:_write": _ONE_FILE,
    "cli/node/identities.py:ensure_identities": _ONE_FILE,
    "cli/node/own_images.py:import_missing": _ONE_FILE,
    "cli/node/preparation.py:forget_earlier_boot": _TREE,
    "cli/node/processes.py:read_pid_file": _ONE_FILE,
    "cli/node/supervisor.py:DaemonKeeper._wait": _ONE_FILE,
    "cli/node/supervisor.py:Supervisor.end": _ONE_FILE,
    "cli/node/supervisor.py:_move_aside": _in("the log of a daemon"),
    "cli/node/supervisor.py:_supervise": _ONE_FILE,
    "cli/node/teardown.py:Teardown._files": _in("one file", "a tree"),
    "cli/node/teardown.py:Teardown._pods": _in("one file", "the content of a directory"),
    "cli/node/teardown.py:Teardown.run": _TREE,
    "cli/node/teardown.py:purge": _in("the state of a node"),
    "cli/node/teardown.py:remove_empty": _because("removes an empty directory; the kernel removes no mount point"),
    "cli/up.py:Up._apply": _ONE_FILE,
    "host/beneath.py:remove_below": _in("a pod's directories", "a directory of logs"),
    "host/beneath.py:remove_empty_below": _in("the end of a local volume", "the stage of a CSI volume"),
    "host/beneath.py:unlink_below": _in("the ids of a pod", "a link to a log"),
    "host/beneath.py:write_in_place": _in("the hosts file"),
    "host/cgroups/tree.py:_rmdir": _in("the cgroups of a pod"),
    "host/cgroups/tree.py:remove_directories": _because("takes back empty directories that it has just made"),
    "host/cgroups/v1.py:V1Hierarchy.remove": _in("the cgroups of a pod"),
    "host/cgroups/v2.py:V2Hierarchy.remove": _in("the cgroups of a pod"),
    "host/containerd_probe.py:find_snapshotter": _SCRATCH,
    "host/files.py:_TreeRemoval._fold": _in("a tree deeper than is entered"),
    "host/files.py:_TreeRemoval._remove": _in("a tree", "a pod's directories"),
    "host/files.py:_remove_entries": _in("the content of a directory"),
    "host/files.py:remove_file": _ONE_FILE,
    "host/files.py:remove_tree": _TREE,
    "host/files.py:scratch_directory": _SCRATCH,
    "host/files.py:write_atomic": _in("a replaced file", "a checkpoint"),
    "host/files.py:write_text": _KERNEL_FILE,
    "host/images.py:_tar": _because("writes an archive in memory"),
    "host/mounts.py:HostMounts.cleanup_mount_point": _in("a mount point"),
    "host/mounts.py:cleanup_mount_point": _in("a mount point", "a mount point that is a file"),
    "host/own_process.py:set_oom_score": _KERNEL_FILE,
    "host/root_directory.py:hold_file": _because("empties the file that it has locked: only the agents write there"),
    "host/storage/scsi.py:_write": _KERNEL_FILE,
    "images/pulled/files.py:PullFileDirectories.remove": _ONE_FILE,
    "images/pulled/files.py:_list": _ONE_FILE,
    "journal/database.py:set_aside": _in("a damaged journal"),
    "kube/transport.py:_load_pair": _because("writes a file in memory"),
    "logs/rotated_files.py:_compress": _in("a log to be compressed"),
    "logs/rotated_files.py:_unlink": _in("a rotated log"),
    "logs/rotated_files.py:rename_log": _because("renames; the kernel renames no mount point, and nothing over one"),
    "logs/rotation.py:LogManager._rotate": _because("only asks for the rename"),
    "offline/object_files.py:_remove_others": _in("objects that no pod has any more"),
    "offline/store.py:AcceptedFile._discard": _ONE_FILE,
    "offline/store.py:_remove_unfinished": _in("unfinished files of what is kept for outages"),
    "offline/store.py:_set_key_aside": _because("renames; the kernel renames no mount point, and nothing over one"),
    "runtime/config/mapping_files.py:PodMappingFiles.remove": _in("the ids of a pod"),
    "runtime/config/sub_paths.py:_clean": _in("the end of sub-paths"),
    "runtime/config/sub_paths.py:_made": _in("a sub-path that was a file"),
    "runtime/gc.py:ContainerGc._collect_logs": _ASKS,
    "runtime/gc.py:ContainerRemover.remove": _ASKS,
    "runtime/log_files.py:LogFiles._link": _in("a link to a log"),
    "runtime/log_files.py:LogFiles.remove_directory": _in("a directory of logs"),
    "runtime/log_files.py:LogFiles.unlink": _in("a link to a log"),
    "runtime/log_files.py:_make_way": _in("something at the path of a new log"),
    "runtime/log_files.py:_remove_log": _in("the log of a container"),
    "runtime/pod_files.py:PodFiles._make_hosts": _in("the hosts file"),
    "runtime/pod_files.py:PodFiles._remove": _in("a pod's directories"),
    "server/listener.py:SocketListener._bind": _ONE_FILE,
    "server/listener.py:SocketListener._remove": _ONE_FILE,
    "sources/file.py:FileSource._list": _because("replaces values of a board"),
    "sync/housekeeping.py:Leftovers.remove": _ASKS,
    "volumes/atomic_writer.py:_Volume._unlink": _in("an update of a configMap"),
    "volumes/atomic_writer.py:_Volume.clear": _in("an update of a configMap"),
    "volumes/atomic_writer.py:_Volume.write": _in("an update of a configMap"),
    "volumes/atomic_writer.py:_write_file": _because("writes a file that it has just made"),
    "volumes/csi/blocks.py:_remove_device": _because("asks unlink_below, and that only if nothing is mounted there"),
    "volumes/csi/directories.py:_unlink": _in("a new vol_data.json"),
    "volumes/csi/directories.py:remove_data": _in("the end of a CSI volume", "the stage of a CSI volume"),
    "volumes/csi/directories.py:remove_empty": _in("the end of a CSI volume", "the stage of a CSI volume"),
    "volumes/csi/directories.py:write_data": _in("a new vol_data.json"),
    "volumes/device_mounts.py:DeviceMounts.remove": _EMPTY,
    "volumes/device_mounts.py:_remove_if_empty": _EMPTY,
    "volumes/directories.py:PodDirectories.remove": _in("an orphaned pod"),
    "volumes/host_devices.py:DeviceFiles._make_link": _in("a new device of a pod"),
    "volumes/host_devices.py:DeviceFiles.remove_map": _in("the map of a block volume"),
    "volumes/host_devices.py:DeviceFiles.unlink": _in("the device of a pod"),
    "volumes/host_devices.py:HostDevices.unlink": _in("the device of a pod"),
    "volumes/host_devices.py:_unbind": _in("the device of a pod"),
    "volumes/host_mounter.py:_try_noswap": _SCRATCH,
    "volumes/local_directories.py:LocalDirectories.set_up": _because("takes back the directory that it has just made"),
    "volumes/local_directories.py:LocalDirectories.tear_down": _in("the end of a local volume"),
    "volumes/orphans.py:_remove_empty": _in("an orphaned pod"),
    "volumes/orphans.py:_remove_sub_paths": _in("an orphaned pod"),
    "volumes/orphans.py:remove_orphan": _in("an orphaned pod"),
    "volumes/plugins/flex.py:FlexPlugin.tear_down": _EMPTY,
    "volumes/plugins/flex.py:_remove_if_empty": _EMPTY,
    "volumes/plugins/git_repo.py:GitRepoPlugin.tear_down": _in("the end of an emptyDir"),
    "volumes/plugins/iscsi.py:IscsiPlugin.remove_device": _because("only asks unlink_below, which is tested"),
    "volumes/plugins/iscsi.py:_write_port": _because("only asks unlink_below and write_in_place, which are tested"),
    "volumes/plugins/iscsi.py:_write_record": _because("only asks write_in_place, which is tested"),
    "volumes/plugins/nfs.py:NfsPlugin._take_down": _EMPTY,
    "volumes/pod_stage.py:PodStage._unmap": _because("only asks HostDevices, which is tested"),
    "volumes/scratch.py:ScratchDirectories.set_up": _in("an emptyDir that has lost its directory"),
    "volumes/scratch.py:ScratchDirectories.tear_down": _in("the end of an emptyDir"),
    "volumes/volume_directories.py:remove_empty_volume": _in("the end of a local volume"),
    "volumes/volume_directories.py:remove_marker": _in("an emptyDir that has lost its directory"),
    "volumes/volume_directories.py:remove_volume": _in("the end of an emptyDir"),
}
"""By the module and the function, with its class."""
