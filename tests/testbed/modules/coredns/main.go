// Package main is the cluster's DNS server: CoreDNS with only the plugins that
// the testbed's Corefile names. It decides which plugins exist and their order
// in the chain; what they do is upstream's, and the Corefile says with which settings.
package main

import (
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"

	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/ready"
	_ "github.com/coredns/coredns/plugin/template"
)

func init() {
	dnsserver.Directives = []string{"ready", "errors", "cache", "kubernetes", "template"}
}

func main() { coremain.Run() }
