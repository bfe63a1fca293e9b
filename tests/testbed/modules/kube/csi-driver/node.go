package main

// The node service: mounts volumes where the kubelet wants them. There is no
// staging step, so a volume is wholly unmounted when its last Pod goes.

import (
	"context"
	"errors"
	"io/fs"
	"os"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func (d *driver) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	return &csi.NodeGetInfoResponse{NodeId: d.node, AccessibleTopology: d.topology()[0]}, nil
}

func (d *driver) NodeGetCapabilities(context.Context, *csi.NodeGetCapabilitiesRequest) (*csi.NodeGetCapabilitiesResponse, error) {
	able := func(t csi.NodeServiceCapability_RPC_Type) *csi.NodeServiceCapability {
		return &csi.NodeServiceCapability{Type: &csi.NodeServiceCapability_Rpc{Rpc: &csi.NodeServiceCapability_RPC{Type: t}}}
	}
	return &csi.NodeGetCapabilitiesResponse{Capabilities: []*csi.NodeServiceCapability{
		able(csi.NodeServiceCapability_RPC_GET_VOLUME_STATS),
		able(csi.NodeServiceCapability_RPC_EXPAND_VOLUME),
	}}, nil
}

func (d *driver) NodePublishVolume(ctx context.Context, q *csi.NodePublishVolumeRequest) (*csi.NodePublishVolumeResponse, error) {
	target := q.GetTargetPath()
	if target == "" {
		return nil, status.Error(codes.InvalidArgument, "target path missing")
	}
	if err := checkCapabilities(q.GetVolumeCapability()); err != nil {
		return nil, err
	}
	if _, err := d.sizeOf(q.GetVolumeId()); err != nil {
		return nil, err
	}
	file := d.store.file(q.GetVolumeId())
	source, err := mountedAt(target)
	if err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	if source != "" && source != loopDevice(file) {
		return nil, status.Errorf(codes.Internal, "%s holds %s, not %s", target, source, file)
	}
	if source == "" {
		if err := os.MkdirAll(target, 0o750); err != nil {
			return nil, status.Error(codes.Internal, err.Error())
		}
		kind, flags := fsType(q.GetVolumeCapability()), q.GetVolumeCapability().GetMount().GetMountFlags()
		if err := mountFile(ctx, file, kind, target, flags); err != nil {
			return nil, status.Error(codes.Internal, err.Error())
		}
	}
	if q.GetReadonly() { // this mount only: other Pods may write
		if err := unix.Mount("", target, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
			return nil, status.Errorf(codes.Internal, "making %s read-only: %v", target, err)
		}
	}
	return &csi.NodePublishVolumeResponse{}, nil
}

func (d *driver) NodeUnpublishVolume(_ context.Context, q *csi.NodeUnpublishVolumeRequest) (*csi.NodeUnpublishVolumeResponse, error) {
	target := q.GetTargetPath()
	if q.GetVolumeId() == "" || target == "" {
		return nil, status.Error(codes.InvalidArgument, "volume id or target path missing")
	}
	for {
		source, err := mountedAt(target)
		if err != nil {
			return nil, status.Error(codes.Internal, err.Error())
		}
		if source == "" {
			break
		}
		if err := unix.Unmount(target, 0); err != nil {
			return nil, status.Errorf(codes.Internal, "unmounting %s: %v", target, err)
		}
	}
	// Never RemoveAll: if a mount were left after all, its data would go.
	if err := os.Remove(target); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, status.Error(codes.Internal, err.Error())
	}
	return &csi.NodeUnpublishVolumeResponse{}, nil
}

// NodeExpandVolume gives a mounted file system the size of its file. The kubelet
// calls it after a mount, and while the volume is in use.
func (d *driver) NodeExpandVolume(ctx context.Context, q *csi.NodeExpandVolumeRequest) (*csi.NodeExpandVolumeResponse, error) {
	if q.GetVolumePath() == "" {
		return nil, status.Error(codes.InvalidArgument, "volume path missing")
	}
	size, err := d.sizeOf(q.GetVolumeId())
	if err != nil {
		return nil, err
	}
	source, err := mountedAt(q.GetVolumePath())
	if err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	file := d.store.file(q.GetVolumeId())
	device := loopDevice(file)
	if device == "" || source != device {
		return nil, status.Errorf(codes.NotFound, "volume %s is not mounted at %s", q.GetVolumeId(), q.GetVolumePath())
	}
	if behind, err := lags(file); err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	} else if behind {
		// The answer of drivers that cannot grow a volume in use: the kubelet does not ask again before the next mount.
		return nil, status.Error(codes.FailedPrecondition, "ext4 grows when it is mounted: the volume is in use")
	}
	if err := run(ctx, "losetup", "--set-capacity", device); err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	var s unix.Statfs_t
	if err := unix.Statfs(q.GetVolumePath(), &s); err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	if s.Type == unix.XFS_SUPER_MAGIC {
		if err := run(ctx, "xfs_growfs", "-d", q.GetVolumePath()); err != nil {
			return nil, status.Error(codes.Internal, err.Error())
		}
	}
	return &csi.NodeExpandVolumeResponse{CapacityBytes: size}, nil
}

// NodeGetVolumeStats is where the kubelet's figures for a volume come from.
func (d *driver) NodeGetVolumeStats(_ context.Context, q *csi.NodeGetVolumeStatsRequest) (*csi.NodeGetVolumeStatsResponse, error) {
	if q.GetVolumePath() == "" {
		return nil, status.Error(codes.InvalidArgument, "volume path missing")
	}
	if _, err := d.sizeOf(q.GetVolumeId()); err != nil {
		return nil, err
	}
	source, err := mountedAt(q.GetVolumePath())
	if err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	if source == "" {
		return nil, status.Errorf(codes.NotFound, "nothing is mounted at %s", q.GetVolumePath())
	}
	var s unix.Statfs_t
	if err := unix.Statfs(q.GetVolumePath(), &s); err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	block := int64(s.Bsize)
	return &csi.NodeGetVolumeStatsResponse{Usage: []*csi.VolumeUsage{
		{Unit: csi.VolumeUsage_BYTES, Total: int64(s.Blocks) * block, Available: int64(s.Bavail) * block, Used: int64(s.Blocks-s.Bfree) * block},
		{Unit: csi.VolumeUsage_INODES, Total: int64(s.Files), Available: int64(s.Ffree), Used: int64(s.Files - s.Ffree)},
	}}, nil
}
