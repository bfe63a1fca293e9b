package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestTopMount(t *testing.T) {
	table := `31 22 7:0 / /x/a\040b rw,noatime - ext4 /dev/loop0 rw
32 22 7:1 / /x/a\040b rw,noatime shared:3 - ext4 /dev/loop1 rw
33 22 7:2 / /x/a rw - ext4 /dev/loop2 rw
`
	for path, want := range map[string]string{"/x/a b": "/dev/loop1", "/x/a b/": "/dev/loop1", "/x/a": "/dev/loop2", "/x": ""} {
		if got := topMount(table, path); got != want {
			t.Errorf("%s: %q, not %q", path, got, want)
		}
	}
}

func TestIDsThatCouldLeaveTheFolder(t *testing.T) {
	for _, bad := range []string{"", "..", "../x", "a/b", ".hidden", "a b"} {
		if validID(bad) {
			t.Errorf("%q is taken for a volume's id", bad)
		}
	}
	if !validID("pvc-0a1b.c_d") {
		t.Error("a common id is refused")
	}
}

func TestSizes(t *testing.T) {
	for asked, want := range map[int64]int64{0: leastSize, leastSize + 1: leastSize + blockSize, 1 << 30: 1 << 30} {
		if got := roundSize(asked, "ext4"); got != want {
			t.Errorf("%d: %d, not %d", asked, got, want)
		}
	}
	if got := roundSize(1, "xfs"); got != leastXFS {
		t.Errorf("xfs: %d", got)
	}
}

// growable makes a volume, and gives its driver and the functions that ask for more.
func growable(t *testing.T, kind string, bytes int64) (*driver, func(int64) (*csi.ControllerExpandVolumeResponse, error)) {
	t.Setenv("PATH", os.Getenv("PATH")+":/sbin:/usr/sbin")
	if _, err := exec.LookPath("mkfs." + kind); err != nil {
		t.Skip("no mkfs." + kind + " here")
	}
	s, err := openStore(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	d, ctx := &driver{node: "n", store: s}, context.Background()
	if err := s.create(ctx, "v", bytes, kind); err != nil {
		t.Fatal(err)
	}
	return d, func(bytes int64) (*csi.ControllerExpandVolumeResponse, error) {
		return d.ControllerExpandVolume(ctx, &csi.ControllerExpandVolumeRequest{VolumeId: "v",
			CapacityRange: &csi.CapacityRange{RequiredBytes: bytes}})
	}
}

// The file grows at once, and an ext4 file system in it before it is mounted next.
func TestAVolumeGrowsAndNeverShrinks(t *testing.T) {
	d, expand := growable(t, "ext4", 32<<20)
	for _, c := range []struct{ asked, want int64 }{{64 << 20, 64 << 20}, {64 << 20, 64 << 20}, {48 << 20, 64 << 20}} {
		r, err := expand(c.asked)
		if err != nil || r.CapacityBytes != c.want || !r.NodeExpansionRequired {
			t.Fatalf("%d: %v, %v", c.asked, r, err)
		}
	}
	file := d.store.file("v")
	if behind, err := lags(file); err != nil || !behind {
		t.Fatalf("the file system lags behind its file: %v, %v", behind, err)
	}
	for range 2 {
		if err := growUnmounted(context.Background(), file); err != nil {
			t.Fatal(err)
		}
		if behind, err := lags(file); err != nil || behind {
			t.Fatalf("after its growth: %v, %v", behind, err)
		}
	}
	if out, err := exec.Command("e2fsck", "-f", "-n", file).CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

func TestTooMuchIsRefusedForGood(t *testing.T) {
	d, expand := growable(t, "ext4", 32<<20)
	if _, err := expand(mostSize + 1); status.Code(err) != codes.OutOfRange {
		t.Error(err)
	}
	if have, err := d.sizeOf("v"); err != nil || have != 32<<20 {
		t.Errorf("%d, %v", have, err)
	}
	_, err := d.ControllerExpandVolume(context.Background(), &csi.ControllerExpandVolumeRequest{VolumeId: "w",
		CapacityRange: &csi.CapacityRange{RequiredBytes: 64 << 20}})
	if status.Code(err) != codes.NotFound {
		t.Error(err)
	}
}

// mounted mounts the volume as the kubelet does, and gives its size by statfs.
func mounted(t *testing.T, d *driver, kind, target string) func() int64 {
	q := &csi.NodePublishVolumeRequest{VolumeId: "v", TargetPath: target, VolumeCapability: &csi.VolumeCapability{
		AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{FsType: kind}},
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER}}}
	if _, err := d.NodePublishVolume(context.Background(), q); err != nil {
		if os.Getuid() != 0 {
			t.Skip("mounting needs root")
		}
		t.Fatal(err)
	}
	t.Cleanup(func() {
		d.NodeUnpublishVolume(context.Background(), &csi.NodeUnpublishVolumeRequest{VolumeId: "v", TargetPath: target})
	})
	return func() int64 {
		var s unix.Statfs_t
		if err := unix.Statfs(target, &s); err != nil {
			t.Fatal(err)
		}
		return int64(s.Blocks) * int64(s.Bsize)
	}
}

func TestXFSGrowsWhileItIsMounted(t *testing.T) {
	d, expand := growable(t, "xfs", 300<<20)
	target := filepath.Join(t.TempDir(), "m")
	size := mounted(t, d, "xfs", target)
	before := size()
	if _, err := expand(600 << 20); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		r, err := d.NodeExpandVolume(context.Background(), &csi.NodeExpandVolumeRequest{VolumeId: "v", VolumePath: target})
		if err != nil || r.CapacityBytes != 600<<20 {
			t.Fatalf("%v, %v", r, err)
		}
	}
	if after := size(); after < before+(250<<20) {
		t.Errorf("%d bytes after %d", after, before)
	}
}

func TestExt4GrowsAtTheNextMount(t *testing.T) {
	d, expand := growable(t, "ext4", 32<<20)
	target := filepath.Join(t.TempDir(), "m")
	size := mounted(t, d, "ext4", target)
	before := size()
	if _, err := expand(128 << 20); err != nil {
		t.Fatal(err)
	}
	ctx, q := context.Background(), &csi.NodeExpandVolumeRequest{VolumeId: "v", VolumePath: target}
	if _, err := d.NodeExpandVolume(ctx, q); status.Code(err) != codes.FailedPrecondition {
		t.Fatalf("in use: %v", err)
	}
	if _, err := d.NodeUnpublishVolume(ctx, &csi.NodeUnpublishVolumeRequest{VolumeId: "v", TargetPath: target}); err != nil {
		t.Fatal(err)
	}
	if _, err := d.NodeExpandVolume(ctx, q); status.Code(err) != codes.NotFound {
		t.Fatalf("not mounted: %v", err)
	}
	size = mounted(t, d, "ext4", target)
	if _, err := d.NodeExpandVolume(ctx, q); err != nil {
		t.Fatalf("after the mount: %v", err)
	}
	if after := size(); after < before+(80<<20) {
		t.Errorf("%d bytes after %d", after, before)
	}
}

// A caller that repeats a request must find what the first one made.
func TestVolumesComeAndGoOnce(t *testing.T) {
	if _, err := os.Stat("/sbin/mkfs.ext4"); err != nil {
		t.Skip("no mkfs.ext4 here")
	}
	t.Setenv("PATH", os.Getenv("PATH")+":/sbin")
	s, err := openStore(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	d, ctx := &driver{node: "n", store: s}, context.Background()
	ask := func(bytes int64) (*csi.CreateVolumeResponse, error) {
		return d.CreateVolume(ctx, &csi.CreateVolumeRequest{Name: "v", CapacityRange: &csi.CapacityRange{RequiredBytes: bytes},
			VolumeCapabilities: []*csi.VolumeCapability{{
				AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{}},
				AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER}}}})
	}
	for range 2 {
		r, err := ask(32 << 20)
		if err != nil || r.Volume.VolumeId != "v" || r.Volume.CapacityBytes != 32<<20 {
			t.Fatalf("%v, %v", r, err)
		}
	}
	if _, err := ask(64 << 20); status.Code(err) != codes.AlreadyExists {
		t.Errorf("the same name with another size: %v", err)
	}
	for range 2 {
		if _, err := d.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: "v"}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := d.sizeOf("v"); status.Code(err) != codes.NotFound {
		t.Errorf("after its deletion: %v", err)
	}
}
