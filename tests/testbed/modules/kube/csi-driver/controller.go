package main

// The controller service: makes and deletes volumes. It decides which requests
// are good; image.go makes the files.

import (
	"context"
	"errors"
	"io/fs"
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func (d *driver) ControllerGetCapabilities(context.Context, *csi.ControllerGetCapabilitiesRequest) (*csi.ControllerGetCapabilitiesResponse, error) {
	return &csi.ControllerGetCapabilitiesResponse{Capabilities: []*csi.ControllerServiceCapability{{
		Type: &csi.ControllerServiceCapability_Rpc{Rpc: &csi.ControllerServiceCapability_RPC{
			Type: csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME}},
	}}}, nil
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
	size, limit := roundSize(q.GetCapacityRange().GetRequiredBytes()), q.GetCapacityRange().GetLimitBytes()
	if limit != 0 && size > limit {
		return nil, status.Errorf(codes.OutOfRange, "the least size is %d bytes, above the limit of %d", size, limit)
	}
	have, err := d.store.size(q.GetName())
	switch {
	case err == nil && (have < size || limit != 0 && have > limit):
		return nil, status.Errorf(codes.AlreadyExists, "volume %s has %d bytes already", q.GetName(), have)
	case err == nil:
		size = have
	case errors.Is(err, fs.ErrNotExist):
		if err := d.store.create(ctx, q.GetName(), size); err != nil {
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
		case c.GetMount().GetFsType() != "" && c.GetMount().GetFsType() != "ext4":
			return status.Error(codes.InvalidArgument, "only ext4")
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
