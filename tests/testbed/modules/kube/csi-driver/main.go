// Program csi-driver gives the testbed's Pods their volumes. A volume is a sparse
// file that holds an ext4 or xfs file system, mounted through a loop device: so it has a
// true size, a true ENOSPC, and an owner that the kubelet can set. Both grow: xfs
// while it is mounted, ext4 when it is mounted next, as with drivers that cannot
// grow a file system in use. (The kernel could, for a process with CAP_SYS_RESOURCE.)
//
// All state is in those files and in the kernel's mount table. The process may be
// killed at any moment, also while Pods write. It must run as root in the same
// mount namespace as the kubelet.
//
// This file serves the calls; identity.go, controller.go and node.go answer them,
// image.go and mount.go do the work.
package main

import (
	"context"
	"errors"
	"flag"
	"io/fs"
	"log"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

const (
	driverName  = "volumes.holdfast-testbed"
	topologyKey = driverName + "/node"
)

type driver struct {
	csi.UnimplementedIdentityServer
	csi.UnimplementedControllerServer
	csi.UnimplementedNodeServer
	node  string
	store store
	locks sync.Map // volume id → *sync.Mutex
}

func main() {
	node := flag.String("node", "", "name of the node, as the kubelet has it")
	dir := flag.String("dir", "", "folder of the volumes' files")
	endpoint := flag.String("endpoint", "", "path of the CSI socket")
	registry := flag.String("registry", "", "the kubelet's plugins_registry folder")
	flag.Parse()
	if *node == "" || !filepath.IsAbs(*dir) || !filepath.IsAbs(*endpoint) || !filepath.IsAbs(*registry) {
		log.Fatal("-node, -dir, -endpoint and -registry are needed, paths absolute")
	}
	store, err := openStore(*dir)
	if err != nil {
		log.Fatal(err)
	}
	d := &driver{node: *node, store: store}
	server := grpc.NewServer(grpc.UnaryInterceptor(d.oneAtATime))
	csi.RegisterIdentityServer(server, d)
	csi.RegisterControllerServer(server, d)
	csi.RegisterNodeServer(server, d)
	registration.RegisterRegistrationServer(server, registrar{endpoint: *endpoint})

	calls := listen(*endpoint)
	// Last, because the kubelet calls as soon as it sees this one.
	registrations := listen(filepath.Join(*registry, driverName+"-reg.sock"))
	log.Printf("serving volumes in %s on %s", *dir, *endpoint)
	go func() { log.Fatal(server.Serve(registrations)) }()
	log.Fatal(server.Serve(calls))
}

// listen takes over the socket that a killed process has left.
func listen(path string) net.Listener {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		log.Fatal(err)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		log.Fatal(err)
	}
	return l
}

// oneAtATime logs each call, and lets calls about the same volume follow one
// another: callers repeat a call whose answer they have not waited for.
func (d *driver) oneAtATime(ctx context.Context, request any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	id := ""
	switch r := request.(type) {
	case interface{ GetVolumeId() string }:
		id = r.GetVolumeId()
	case *csi.CreateVolumeRequest:
		id = r.GetName()
	}
	if id == "" {
		return handle(ctx, request)
	}
	m, _ := d.locks.LoadOrStore(id, &sync.Mutex{})
	m.(*sync.Mutex).Lock()
	defer m.(*sync.Mutex).Unlock()
	start := time.Now()
	answer, err := handle(ctx, request)
	if err != nil {
		log.Printf("%s %s: %v", info.FullMethod, id, err)
	} else {
		log.Printf("%s %s: done in %s", info.FullMethod, id, time.Since(start).Round(time.Millisecond))
	}
	return answer, err
}

// registrar tells the kubelet where the driver is, which otherwise a program of its own does.
type registrar struct {
	registration.UnimplementedRegistrationServer
	endpoint string
}

func (r registrar) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{Type: registration.CSIPlugin, Name: driverName, Endpoint: r.endpoint, SupportedVersions: []string{"1.0.0"}}, nil
}

func (r registrar) NotifyRegistrationStatus(_ context.Context, s *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	if !s.PluginRegistered {
		log.Printf("the kubelet refused the driver: %s", s.Error)
	}
	return &registration.RegistrationStatusResponse{}, nil
}
