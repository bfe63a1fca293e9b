package main

// What the testbed is built of: the Go modules, the programs made of each, and
// the hashes that say when one has to be built anew. How a part is built is build.go's.

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

// A part is one Go module of this folder and the programs built from it. Its
// finished programs are in a folder of the cache that is named by its hash.
type part struct {
	name     string
	folder   string   // of the module, below the source folder
	sources  []string // what its hash covers, below the source folder; the module's folder if empty
	programs []program
	copies   []copied // of modules' own files, beside the programs
	ldflags  string
	flags    []string      // of the compiler, beside those of every part
	apart    bool          // no running cluster needs it: made by `part` and `build` only
	usual    time.Duration // from clean caches on two cores: what a person is told to expect
	hash     string
}

type program struct{ name, pkg string }

// A folder of a module that is copied as it is.
type copied struct{ name, module, folder string }

type partSet struct {
	parts     []*part
	byName    map[string]*part
	minors    []string // of etcd, and older patches of them by their whole version, in the order of their folders
	usualEtcd string   // the part whose etcd programs are in PATH: the control plane's minor
	key       string   // of the whole testbed: every source and every version
	base      string   // of what a running cluster cannot change under its feet; see owner.go
}

var etcdPrograms = []program{
	{"etcd", "go.etcd.io/etcd/server/v3"},
	{"etcdctl", "go.etcd.io/etcd/etcdctl/v3"},
	{"etcdutl", "go.etcd.io/etcd/etcdutl/v3"},
}

func newPartSet(l layout, v versions) (*partSet, error) {
	s := &partSet{byName: map[string]*part{}}
	type check struct{ folder, module, variable string }
	var checks []check
	add := func(p *part, c ...check) {
		s.parts = append(s.parts, p)
		s.byName[p.name] = p
		checks = append(checks, c...)
	}

	// Without these variables the programs say they are v0.0.0, and clients that
	// look at the server's version are misled.
	var kubeFlags strings.Builder
	major, rest, _ := strings.Cut(v["KUBERNETES"], ".")
	minor, _, _ := strings.Cut(rest, ".")
	for _, pkg := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
		fmt.Fprintf(&kubeFlags, " -X %s.gitVersion=v%s -X %s.gitMajor=%s -X %s.gitMinor=%s", pkg, v["KUBERNETES"], pkg, major, pkg, minor)
	}
	add(&part{name: "kube", folder: "modules/kube", usual: 5 * time.Minute, ldflags: kubeFlags.String(), programs: []program{
		{"kube", "./kube"},
		{"csi-driver", "./csi-driver"},
		{"csi-provisioner", "github.com/kubernetes-csi/external-provisioner/v6/cmd/csi-provisioner"},
		{"csi-resizer", "github.com/kubernetes-csi/external-resizer/v2/cmd/csi-resizer"},
	}},
		check{"modules/kube", "k8s.io/kubernetes", "KUBERNETES"},
		check{"modules/kube", "github.com/kubernetes-csi/external-provisioner/v6", "CSI_PROVISIONER"},
		check{"modules/kube", "github.com/kubernetes-csi/external-resizer/v2", "CSI_RESIZER"})

	folders, err := filepath.Glob(filepath.Join(l.source, "modules", "etcd-*"))
	if err != nil {
		return nil, err
	}
	only := os.Getenv("HOLDFAST_TESTBED_ETCD")
	for _, f := range folders {
		minor := strings.TrimPrefix(filepath.Base(f), "etcd-")
		if only != "" && minor != only && minor != v["CONTROL_PLANE_ETCD"] {
			continue // a later run without the variable builds and loads it
		}
		folder := "modules/etcd-" + minor
		s.minors = append(s.minors, minor)
		// The minors share most of their dependencies' compiled packages, and with kube.
		p := &part{name: "etcd-" + minor, folder: folder, usual: 30 * time.Second}
		var pinned []check
		for _, program := range etcdPrograms {
			found, err := required(l.source, folder, program.pkg)
			if err != nil {
				return nil, err
			}
			if patch := strings.Count(minor, ".") > 1; patch && program.name == "etcdctl" && found == "" {
				continue // not to be had of every older patch, and nobody here needs it
			}
			p.programs = append(p.programs, program)
			pinned = append(pinned, check{folder, program.pkg, etcdVariable(minor)})
		}
		add(p, pinned...)
	}
	s.usualEtcd = "etcd-" + v["CONTROL_PLANE_ETCD"]
	if s.byName[s.usualEtcd] == nil {
		return nil, fmt.Errorf("versions.env: CONTROL_PLANE_ETCD=%s, but there is no folder modules/etcd-%[1]s", v["CONTROL_PLANE_ETCD"])
	}

	add(&part{name: "coredns", folder: "modules/coredns", usual: time.Minute, programs: []program{{"coredns", "."}}},
		check{"modules/coredns", "github.com/coredns/coredns", "COREDNS"})
	add(&part{name: "versitygw", folder: "modules/versitygw", usual: 45 * time.Second,
		ldflags:  " -X main.Version=v" + v["VERSITYGW"],
		programs: []program{{"versitygw", "github.com/versity/versitygw/cmd/versitygw"}}},
		check{"modules/versitygw", "github.com/versity/versitygw", "VERSITYGW"})
	// With one minor alone nothing of this testbed uses the next three.
	add(&part{name: "cert-manager", folder: "modules/cert-manager", usual: 2 * time.Minute, apart: only != "",
		programs: []program{{"cert-manager", "."}},
		copies:   []copied{{"crds", "github.com/cert-manager/cert-manager", "deploy/crds"}}},
		check{"modules/cert-manager", "github.com/cert-manager/cert-manager", "CERT_MANAGER"})
	add(&part{name: "robustness", folder: "modules/robustness", usual: 30 * time.Second, apart: only != "", programs: []program{{"robustness", "."}}},
		check{"modules/robustness", "go.etcd.io/etcd/tests/v3", "ETCD_ROBUSTNESS"})
	add(&part{name: "helm", folder: "modules/helm", usual: 3 * time.Minute, apart: only != "",
		ldflags:  " -X helm.sh/helm/v4/internal/version.version=v" + v["HELM"],
		programs: []program{{"helm", "helm.sh/helm/v4/cmd/helm"}}},
		check{"modules/helm", "helm.sh/helm/v4", "HELM"})
	// Rules and queries are judged by them; neither discovers targets anywhere.
	add(&part{name: "prometheus", folder: "modules/prometheus", usual: 6 * time.Minute, apart: true, flags: []string{"-tags", "remove_all_sd"},
		programs: []program{
			{"promtool", "github.com/prometheus/prometheus/cmd/promtool"},
			{"prometheus", "github.com/prometheus/prometheus/cmd/prometheus"},
		}},
		check{"modules/prometheus", "github.com/prometheus/prometheus", "PROMETHEUS"})
	add(&part{name: "probe", folder: "probe", usual: 20 * time.Second, programs: []program{{"holdfast-probe", "."}}},
		check{"probe", "go.etcd.io/etcd/client/v3", "ETCD_CLIENT"})
	add(&part{name: "pause", folder: ".", sources: []string{"go.mod", "cmd/pause"}, usual: 2 * time.Second,
		programs: []program{{"pause", "./cmd/pause"}}})

	for _, c := range checks {
		if err := v.checkModule(l.source, c.folder, c.module, c.variable); err != nil {
			return nil, err
		}
	}
	for _, p := range s.parts {
		if err := p.computeHash(l.source); err != nil {
			return nil, err
		}
	}
	if s.key, err = hashFiles(l.source, []string{"."}, runtime.Version()); err != nil {
		return nil, err
	}
	s.base, err = hashFiles(l.source, []string{"cmd", "go.mod", "versions.env", "audit-policy.yaml", "manifests/cluster", "modules/kube", "modules/coredns",
		"modules/" + s.usualEtcd}, runtime.Version())
	return s, err
}

// computeHash covers what the programs are made of: their sources, the way they
// are linked and the compiler. The sources pin all dependencies by their go.sum.
func (p *part) computeHash(source string) (err error) {
	roots := p.sources
	if len(roots) == 0 {
		roots = []string{p.folder}
	}
	p.hash, err = hashFiles(source, roots, runtime.Version(), p.ldflags, fmt.Sprint(p.programs, p.copies), strings.Join(slices.Concat(buildFlags, p.flags), " "))
	return err
}

// hashFiles hashes some strings, and all files below some roots by path, mode and
// content. Tests and documentation do not change what runs, so they are left out.
func hashFiles(source string, roots []string, extra ...string) (string, error) {
	h := sha256.New()
	for _, e := range extra {
		fmt.Fprintf(h, "%d:%s\n", len(e), e)
	}
	var files []string
	for _, root := range roots {
		err := filepath.WalkDir(filepath.Join(source, root), func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.Type().IsRegular() && !strings.HasSuffix(path, "_test.go") && !strings.HasSuffix(path, ".md") {
				files = append(files, path)
			}
			return err
		})
		if err != nil {
			return "", err
		}
	}
	slices.Sort(files)
	for _, f := range slices.Compact(files) {
		b, err := os.ReadFile(f)
		if err != nil {
			return "", err
		}
		rel, err := filepath.Rel(source, f)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(h, "%s %d\n", rel, len(b))
		h.Write(b)
	}
	return hex.EncodeToString(h.Sum(nil))[:12], nil
}

func (l layout) partFolder(p *part) string { return filepath.Join(l.cache, p.name+"-"+p.hash) }

// binary gives the path of a built program.
func (s *partSet) binary(l layout, part, program string) string {
	return filepath.Join(l.partFolder(s.byName[part]), program)
}
