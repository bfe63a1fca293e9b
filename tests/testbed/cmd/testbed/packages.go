package main

// Debian packages: installs those that the machine lacks. It decides which ones
// are needed; their versions are the distribution's.

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// needed maps a file to the package that brings it. Looking for files keeps a
// machine whose administrator got them another way as it is.
var needed = []struct{ file, pkg string }{
	{"/usr/bin/containerd", "containerd"},
	{"/usr/sbin/runc", "runc"},
	{"/usr/lib/cni/bridge", "containernetworking-plugins"},
	{"/usr/sbin/iptables", "iptables"},
	{"/sbin/ip", "iproute2"},
	{"/sbin/losetup", "mount"},
	{"/sbin/mkfs.ext4", "e2fsprogs"},
	{"/sbin/mkfs.xfs", "xfsprogs"},
}

func installPackages() error {
	var missing []string
	for _, n := range needed {
		if _, err := os.Stat(n.file); err != nil {
			missing = append(missing, n.pkg)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	say("installing Debian packages: %s", strings.Join(missing, " "))
	if err := aptGet("update"); err != nil {
		return err
	}
	return aptGet(append([]string{"install", "-y", "--no-install-recommends"}, missing...)...)
}

func aptGet(args ...string) error {
	cmd := exec.Command("apt-get", append([]string{"-qq"}, args...)...)
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("apt-get %s: %w\n%s", strings.Join(args, " "), err, out.Bytes())
	}
	return nil
}
