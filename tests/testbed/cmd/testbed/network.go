package main

// The testbed's network on the host: the bridge, kernel settings, the CNI
// configuration. Everything is bound to the bridge's address or to 127.0.0.1, so
// the bridge has to be there before anything starts; and nothing outside the
// machine gets in (firewall.go says how). Pods' own interfaces are the CNI plugins'.

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

const cniNetwork = clusterName // also the prefix of the CNI library's result files

// kernelSettings that the network needs; what they were before is put back at the end.
var kernelSettings = map[string]string{
	"net/ipv4/ip_forward": "1",
	// A Pod that reaches another over a Service gets the answer across the bridge;
	// it has to pass the translation back on its way.
	"net/bridge/bridge-nf-call-iptables": "1",
}

func setUpNetwork(l layout) error {
	if _, err := os.Stat("/proc/sys/net/bridge"); err != nil {
		if err := run("modprobe", "br_netfilter"); err != nil {
			return fmt.Errorf("the kernel has no br_netfilter, which Services need: %w", err)
		}
	}
	if err := applyKernelSettings(l); err != nil {
		return err
	}
	if _, err := os.Stat("/sys/class/net/" + bridgeName); errors.Is(err, fs.ErrNotExist) {
		// A fixed hardware address: otherwise it changes with each Pod that comes or
		// goes, and the others' idea of where their gateway is goes stale.
		if err := run("ip", "link", "add", bridgeName, "address", bridgeMAC, "type", "bridge"); err != nil {
			return err
		}
	}
	if err := run("ip", "address", "replace", nodeIP+"/24", "dev", bridgeName); err != nil {
		return err
	}
	if err := run("ip", "link", "set", bridgeName, "up"); err != nil {
		return err
	}
	if err := os.MkdirAll(l.cniFolder(), 0o755); err != nil {
		return err
	}
	return writeFile(filepath.Join(l.cniFolder(), "10-testbed.conflist"), cniConfig(l), 0o644)
}

func (l layout) cniFolder() string  { return l.inState("cni") }
func (l layout) ipamFolder() string { return l.inState("ipam") }

func cniConfig(l layout) []byte {
	type object = map[string]any
	b, _ := json.MarshalIndent(object{ // of strings and booleans only: it cannot fail
		"cniVersion": "1.0.0",
		"name":       cniNetwork,
		"plugins": []object{
			{
				"type": "bridge", "bridge": bridgeName, "isDefaultGateway": true, "ipMasq": true,
				"hairpinMode": true, // a Pod may reach itself over its Service
				"ipam":        object{"type": "host-local", "dataDir": l.ipamFolder(), "ranges": [][]object{{{"subnet": podSubnet}}}},
			},
			{"type": "portmap", "capabilities": object{"portMappings": true}},
		},
	}, "", "\t")
	return b
}

func applyKernelSettings(l layout) error {
	for name, want := range kernelSettings {
		file := "/proc/sys/" + name
		b, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		have := strings.TrimSpace(string(b))
		saved := l.inState("kernel-settings", strings.ReplaceAll(name, "/", "."))
		if _, err := os.Stat(saved); errors.Is(err, fs.ErrNotExist) {
			if err := writeFile(saved, []byte(have), 0o644); err != nil {
				return err
			}
		}
		if have != want {
			if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
				return err
			}
		}
	}
	return nil
}

func restoreKernelSettings(l layout) error {
	for name := range kernelSettings {
		before, err := os.ReadFile(l.inState("kernel-settings", strings.ReplaceAll(name, "/", ".")))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		} else if err != nil {
			return err
		}
		if err := os.WriteFile("/proc/sys/"+name, before, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// removeNetwork deletes the bridge and whatever hangs on it. Pods' interfaces go
// with their namespaces, but the kernel takes its time over that.
func removeNetwork(l layout) error {
	ports, _ := os.ReadDir("/sys/class/net/" + bridgeName + "/brif")
	for _, p := range ports {
		if err := run("ip", "link", "delete", p.Name()); err != nil {
			if _, gone := os.Stat("/sys/class/net/" + p.Name()); gone == nil {
				return err
			}
		}
	}
	if _, err := os.Stat("/sys/class/net/" + bridgeName); err == nil {
		if err := run("ip", "link", "delete", bridgeName); err != nil {
			return err
		}
	}
	return removeCNIResults(l)
}

// removeCNIResults forgets what the plugins answered: ours are told by the
// network's name, and those of the loopback network by the sandboxes' ids.
func removeCNIResults(l layout) error {
	const ours = cniNetwork + "-"
	files, _ := filepath.Glob(filepath.Join(l.cniResults, ours+"*"))
	for _, f := range files {
		id, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(f), ours), "-")
		for _, f := range []string{f, filepath.Join(l.cniResults, "cni-loopback-"+id+"-lo")} {
			if err := os.Remove(f); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	return nil
}
