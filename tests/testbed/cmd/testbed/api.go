package main

// Questions to the API server: is it there, is the node ready, do the parts that
// run in the cluster work. It reads only; what is put into the cluster is kubectl's.

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"
)

type apiClient struct{ http *http.Client }

func newAPIClient(l layout) (*apiClient, error) {
	ca, err := os.ReadFile(l.inState("pki", "ca.crt"))
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	pair, err := tls.LoadX509KeyPair(l.inState("pki", "admin.crt"), l.inState("pki", "admin.key"))
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}}}
	return &apiClient{&http.Client{Transport: transport, Timeout: 5 * time.Second}}, nil
}

// get reads one path; into may be nil when the answer's code is all that matters.
func (c *apiClient) get(path string, into any) error {
	r, err := c.http.Get("https://" + apiServer + path)
	if err != nil {
		return err
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	if r.StatusCode != http.StatusOK {
		return fmt.Errorf("GET %s: %s", path, r.Status)
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(b, into)
}

func (c *apiClient) ready() error { return c.get("/readyz", nil) }

// nodeReady wants a sign of life that is newer than the kubelet's process: after
// a crash the API server goes on saying for a while what was true before it. The
// kubelet gives two: it renews its lease every ten seconds, and it reports its
// conditions when they change, which on a new node comes first.
func (c *apiClient) nodeReady(kubeletStart time.Time) error {
	var node struct {
		Status struct {
			Conditions []struct {
				Type, Status, Message string
				LastHeartbeatTime     time.Time
			} `json:"conditions"`
		} `json:"status"`
	}
	if err := c.get("/api/v1/nodes/"+nodeName, &node); err != nil {
		return err
	}
	var lease struct {
		Spec struct{ RenewTime time.Time } `json:"spec"`
	}
	c.get("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/"+nodeName, &lease) // there is none at first
	for _, condition := range node.Status.Conditions {
		if condition.Type != "Ready" {
			continue
		}
		seen := condition.LastHeartbeatTime
		if lease.Spec.RenewTime.After(seen) {
			seen = lease.Spec.RenewTime
		}
		switch age := time.Since(seen); {
		case seen.Before(kubeletStart.Truncate(time.Second)): // heartbeats are in whole seconds
			return fmt.Errorf("the kubelet has not reported since it was started")
		case age > 45*time.Second:
			return fmt.Errorf("the kubelet has not reported for %s", age.Round(time.Second))
		case condition.Status != "True":
			return fmt.Errorf("node not ready: %s", condition.Message)
		}
		return nil
	}
	return fmt.Errorf("the node has no condition yet")
}

// kubeletHasPods says whether the kubelet knows its Pods: for a moment after its
// start it does not, and until then nobody can exec into one.
func (c *apiClient) kubeletHasPods() error {
	var pods struct{ Items []struct{} }
	if err := c.get("/api/v1/nodes/"+nodeName+"/proxy/pods", &pods); err != nil {
		return err
	}
	if len(pods.Items) == 0 { // there is the DNS server's at least
		return fmt.Errorf("the kubelet has not read its Pods")
	}
	return nil
}

// volumesReady says whether the kubelet knows the volume driver.
func (c *apiClient) volumesReady() error {
	var node struct {
		Spec struct {
			Drivers []struct{ Name string } `json:"drivers"`
		} `json:"spec"`
	}
	if err := c.get("/apis/storage.k8s.io/v1/csinodes/"+nodeName, &node); err != nil {
		return err
	}
	if len(node.Spec.Drivers) == 0 {
		return fmt.Errorf("the kubelet has not registered the volume driver")
	}
	return nil
}

// dnsWorks asks the cluster's DNS for a name that is always there. An answer
// means that sandboxes, the Pods' network, Services and DNS all work.
func dnsWorks() error {
	resolver := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "udp", dnsServiceIP+":53")
	}}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if _, err := resolver.LookupHost(ctx, "kubernetes.default.svc.cluster.local."); err != nil {
		return fmt.Errorf("no answer from %s", dnsServiceIP) // the error itself names the machine's own server
	}
	return nil
}
