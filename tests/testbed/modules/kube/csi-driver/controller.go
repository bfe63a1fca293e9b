package main

// The controller service: makes, grows and deletes volumes. It decides which requests
// are good; image.go makes the files.

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func (d *driver) ControllerGetCapabilities(context.Context, *csi.ControllerGetCapabilitiesRequest) (*csi.ControllerGetCapabilitiesResponse, error) {
	able := func(t csi.ControllerServiceCapability_RPC_Type) *csi.ControllerServiceCapability {
		return &csi.ControllerServiceCapability{Type: &csi.ControllerServiceCapability_Rpc{Rpc: &csi.ControllerServiceCapability_RPC{Type: t}}}
	}
	return &csi.ControllerGetCapabilitiesResponse{Capabilities: []*csi.ControllerServiceCapability{
		able(csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME),
		able(csi.ControllerServiceCapability_RPC_EXPAND_VOLUME),
	}}, nil
}

// CreateVolume makes the volume or finds it made: a volume's id is the name it
// was asked for by, so a repeated request leads to the same one.
func (d *driver) CreateVolume(ctx context.Context, q *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
	if !validID(q.GetName()) {
		return nil, status.Errorf(codes.InvalidArgument, "bad volume name %q", q.GetName())
	}
	if err := checkCapabilities(q.GetVolumeCapabilities()...); err != nil {
		return nil, err
	}
	if q.GetVolumeContentSource() != nil {
		return nil, status.Error(codes.InvalidArgument, "volumes start empty: there are no snapshots and no clones")
	}
	here := func(t *csi.Topology) bool { return t.GetSegments()[topologyKey] == d.node }
	if r := q.GetAccessibilityRequirements().GetRequisite(); len(r) > 0 && !slices.ContainsFunc(r, here) {
		return nil, status.Error(codes.ResourceExhausted, "the volume is asked for on another node")
	}
	kind, limit := fsType(q.GetVolumeCapabilities()[0]), q.GetCapacityRange().GetLimitBytes()
	size, err := wantedSize(q.GetCapacityRange(), kind)
	if err != nil {
		return nil, err
	}
	have, err := d.store.size(q.GetName())
	switch {
	case err == nil && (have < size || limit != 0 && have > limit):
		return nil, status.Errorf(codes.AlreadyExists, "volume %s has %d bytes already", q.GetName(), have)
	case err == nil:
		size = have
	case errors.Is(err, fs.ErrNotExist):
		if err := d.store.create(ctx, q.GetName(), size, kind); err != nil {
			return nil, status.Error(codes.Internal, err.Error())
		}
	default:
		return nil, status.Error(codes.Internal, err.Error())
	}
	return &csi.CreateVolumeResponse{Volume: &csi.Volume{
		VolumeId: q.GetName(), CapacityBytes: size, AccessibleTopology: d.topology()}}, nil
}

func (d *driver) DeleteVolume(_ context.Context, q *csi.DeleteVolumeRequest) (*csi.DeleteVolumeResponse, error) {
	if q.GetVolumeId() == "" {
		return nil, status.Error(codes.InvalidArgument, "volume id missing")
	}
	// There are no VolumeAttachments here, so nobody but us holds a deletion back
	// while the volume is mounted.
	if device := loopDevice(d.store.file(q.GetVolumeId())); device != "" {
		return nil, status.Errorf(codes.FailedPrecondition, "volume %s is in use on %s", q.GetVolumeId(), device)
	}
	if err := d.store.delete(q.GetVolumeId()); err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	return &csi.DeleteVolumeResponse{}, nil
}

// ControllerExpandVolume makes the volume's file larger. The file system in it is
// the node's: it grows while it is mounted (xfs), or when it is mounted next (ext4).
func (d *driver) ControllerExpandVolume(_ context.Context, q *csi.ControllerExpandVolumeRequest) (*csi.ControllerExpandVolumeResponse, error) {
	have, err := d.sizeOf(q.GetVolumeId())
	if err != nil {
		return nil, err
	}
	if q.GetCapacityRange() == nil {
		return nil, status.Error(codes.InvalidArgument, "capacity range missing")
	}
	size, err := wantedSize(q.GetCapacityRange(), "")
	if err != nil {
		return nil, err
	}
	if size > have { // a volume never shrinks
		if err := d.store.grow(q.GetVolumeId(), size); err != nil {
			return nil, status.Error(codes.Internal, err.Error())
		}
	}
	return &csi.ControllerExpandVolumeResponse{CapacityBytes: max(size, have), NodeExpansionRequired: true}, nil
}

// wantedSize is the size that satisfies a request. OutOfRange is what a resizer
// takes for an answer that no repetition changes.
func wantedSize(r *csi.CapacityRange, kind string) (int64, error) {
	size, limit := roundSize(r.GetRequiredBytes(), kind), r.GetLimitBytes()
	if limit != 0 && size > limit {
		return 0, status.Errorf(codes.OutOfRange, "the least size is %d bytes, above the limit of %d", size, limit)
	}
	if size > mostSize {
		return 0, status.Errorf(codes.OutOfRange, "%d bytes are asked for, and a volume has at most %d", size, int64(mostSize))
	}
	return size, nil
}

func fsType(c *csi.VolumeCapability) string { return cmp.Or(c.GetMount().GetFsType(), "ext4") }

func (d *driver) ValidateVolumeCapabilities(_ context.Context, q *csi.ValidateVolumeCapabilitiesRequest) (*csi.ValidateVolumeCapabilitiesResponse, error) {
	if _, err := d.sizeOf(q.GetVolumeId()); err != nil {
		return nil, err
	}
	if len(q.GetVolumeCapabilities()) == 0 {
		return nil, status.Error(codes.InvalidArgument, "volume capabilities missing")
	}
	if err := checkCapabilities(q.GetVolumeCapabilities()...); err != nil {
		return &csi.ValidateVolumeCapabilitiesResponse{Message: err.Error()}, nil
	}
	return &csi.ValidateVolumeCapabilitiesResponse{Confirmed: &csi.ValidateVolumeCapabilitiesResponse_Confirmed{
		VolumeContext: q.GetVolumeContext(), VolumeCapabilities: q.GetVolumeCapabilities(), Parameters: q.GetParameters()}}, nil
}

func checkCapabilities(capabilities ...*csi.VolumeCapability) error {
	if len(capabilities) == 0 || capabilities[0] == nil {
		return status.Error(codes.InvalidArgument, "volume capability missing")
	}
	for _, c := range capabilities {
		switch mode := c.GetAccessMode().GetMode(); {
		case c.GetMount() == nil:
			return status.Error(codes.InvalidArgument, "only file system volumes")
		case fsType(c) != "ext4" && fsType(c) != "xfs":
			return status.Error(codes.InvalidArgument, "only ext4 and xfs")
		case mode != csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER && mode != csi.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY:
			return status.Errorf(codes.InvalidArgument, "access mode %v: a volume is on one node only", mode)
		}
	}
	return nil
}

// sizeOf is store.size with the errors that CSI wants.
func (d *driver) sizeOf(id string) (int64, error) {
	if id == "" {
		return 0, status.Error(codes.InvalidArgument, "volume id missing")
	}
	size, err := d.store.size(id)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, status.Errorf(codes.NotFound, "no volume %q", id)
	} else if err != nil {
		return 0, status.Error(codes.Internal, err.Error())
	}
	return size, nil
}
