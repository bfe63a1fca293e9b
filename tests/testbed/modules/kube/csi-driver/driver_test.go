package main

import (
	"context"
	"os"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
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
		if got := roundSize(asked); got != want {
			t.Errorf("%d: %d, not %d", asked, got, want)
		}
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
