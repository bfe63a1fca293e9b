package main

// `env`: what a shell or a test has to know of the testbed, as exports. It says
// where things are, not whether they are there: that is status.go's.

import (
	"fmt"
	"strings"
)

func exports(l layout, s *partSet) string {
	var out strings.Builder
	export := func(name, value string) { fmt.Fprintf(&out, "export %s=%s\n", name, quote(value)) }
	export("HOLDFAST_TESTBED_KUBECONFIG", l.kubeconfig())
	export("HOLDFAST_TESTBED_AUDIT", l.logFile("audit"))
	for _, minor := range s.minors { // each a folder with etcd, etcdutl and, of a minor, etcdctl
		export("HOLDFAST_"+etcdVariable(minor), l.partFolder(s.byName["etcd-"+minor]))
	}
	export("HOLDFAST_CERT_MANAGER", l.partFolder(s.byName["cert-manager"])) // cert-manager, and crds/
	export("HOLDFAST_ROBUSTNESS", s.binary(l, "robustness", "robustness"))
	fmt.Fprintf(&out, "export PATH=%s:\"$PATH\"\n", quote(l.programFolder(s)))
	return out.String()
}

func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
