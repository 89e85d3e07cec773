"""The calls of the CSI that a node makes or a driver serves, as the client and the test driver use them."""

from klet.wire import csi_v1_pb2 as pb
from klet.wire.methods import method_of

IDENTITY_SERVICE = pb.DESCRIPTOR.services_by_name["Identity"]
NODE_SERVICE = pb.DESCRIPTOR.services_by_name["Node"]

NODE_STAGE_VOLUME = method_of(NODE_SERVICE, "NodeStageVolume", pb.NodeStageVolumeRequest, pb.NodeStageVolumeResponse)
NODE_UNSTAGE_VOLUME = method_of(
    NODE_SERVICE, "NodeUnstageVolume", pb.NodeUnstageVolumeRequest, pb.NodeUnstageVolumeResponse
)
NODE_PUBLISH_VOLUME = method_of(
    NODE_SERVICE, "NodePublishVolume", pb.NodePublishVolumeRequest, pb.NodePublishVolumeResponse
)
NODE_UNPUBLISH_VOLUME = method_of(
    NODE_SERVICE, "NodeUnpublishVolume", pb.NodeUnpublishVolumeRequest, pb.NodeUnpublishVolumeResponse
)
NODE_GET_VOLUME_STATS = method_of(
    NODE_SERVICE, "NodeGetVolumeStats", pb.NodeGetVolumeStatsRequest, pb.NodeGetVolumeStatsResponse
)
NODE_EXPAND_VOLUME = method_of(
    NODE_SERVICE, "NodeExpandVolume", pb.NodeExpandVolumeRequest, pb.NodeExpandVolumeResponse
)
NODE_GET_CAPABILITIES = method_of(
    NODE_SERVICE, "NodeGetCapabilities", pb.NodeGetCapabilitiesRequest, pb.NodeGetCapabilitiesResponse
)
NODE_GET_INFO = method_of(NODE_SERVICE, "NodeGetInfo", pb.NodeGetInfoRequest, pb.NodeGetInfoResponse)
