package main

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestProcessStatusWithAwkwardNames(t *testing.T) {
	const tail = " S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4242 20 21"
	for _, name := range []string{"(etcd)", "(a b)", "(a) R 7 (b)"} {
		state, start, err := statFields("17 " + name + tail)
		if err != nil || state != 'S' || start != 4242 {
			t.Errorf("%s: state %c, start %d, %v", name, state, start, err)
		}
	}
	if _, _, err := statFields("17 (x) S 1"); err == nil {
		t.Error("a cut-off status was taken for whole")
	}
}

func TestReusedPidIsNotOurs(t *testing.T) {
	me, err := identify(os.Getpid())
	if err != nil || !me.alive() {
		t.Fatalf("this very process: %v, %v", me, err)
	}
	other := procID{me.pid, me.start + 1}
	if other.alive() {
		t.Error("a process that was started at another time counts as alive")
	}
	if err := other.kill(0); err != nil {
		t.Errorf("ending a process that is gone: %v", err) // had it hit, the test would not be here
	}
	again, err := parseProcID(me.String() + "\n")
	if err != nil || again != me {
		t.Errorf("written and read back: %v, %v", again, err)
	}
	for _, bad := range []string{"", "17", "0 5", "1 5", "-1 5", "x y"} {
		if _, err := parseProcID(bad); err == nil {
			t.Errorf("%q was taken for an identity", bad)
		}
	}
}

func TestMounts(t *testing.T) {
	table := `22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
31 22 7:0 / /var/lib/x/a\040b rw,noatime - ext4 /dev/loop0 rw
32 22 0:5 net:[4026532000] /run/x/netns/cni-1 rw shared:2 master:3 - nsfs nsfs rw
broken line
`
	got := parseMounts(table)
	want := []mount{{"/", "ext4", "/dev/vda"}, {"/var/lib/x/a b", "ext4", "/dev/loop0"}, {"/run/x/netns/cni-1", "nsfs", "nsfs"}}
	if !slices.Equal(got, want) {
		t.Errorf("got %v", got)
	}
	if !below("/a/b", "/a") || !below("/a", "/a") || below("/ab", "/a") {
		t.Error("below() takes a name that begins alike for a subfolder, or misses one")
	}
}

const rules = `*filter
:INPUT ACCEPT [0:0]
:KUBE-FIREWALL - [0:0]
:HOLDFAST-TESTBED - [0:0]
:KUBE-OTHERS - [0:0]
:DOCKER - [0:0]
-A INPUT -j KUBE-FIREWALL
-A INPUT -s 10.0.0.0/8 -m comment --comment "a b" -j HOLDFAST-TESTBED
-A INPUT -j KUBE-OTHERS
-A INPUT -j DOCKER
-A KUBE-FIREWALL -j DROP
COMMIT
*nat
:POSTROUTING ACCEPT [0:0]
:CNI-0123 - [0:0]
-A POSTROUTING -s 10.88.77.2/32 -j CNI-0123
COMMIT
`

func TestOnlyOurChainsGo(t *testing.T) {
	keep := func(table, chain string) bool { return table == "filter" && chain == "KUBE-OTHERS" }
	script := removal(rules, keep)
	for _, want := range []string{
		"-D INPUT -j KUBE-FIREWALL\n", `-D INPUT -s 10.0.0.0/8 -m comment --comment "a b" -j HOLDFAST-TESTBED` + "\n",
		"-F KUBE-FIREWALL\n", "-X KUBE-FIREWALL\n", "-X HOLDFAST-TESTBED\n", "-D POSTROUTING -s 10.88.77.2/32 -j CNI-0123\n", "-X CNI-0123\n",
	} {
		if !strings.Contains(script, want) {
			t.Errorf("%q is missing from\n%s", want, script)
		}
	}
	for _, not := range []string{"DOCKER", "KUBE-OTHERS"} {
		if strings.Contains(script, not) {
			t.Errorf("%s, which is not ours, is in\n%s", not, script)
		}
	}
	if s := removal("*filter\n:INPUT ACCEPT [0:0]\nCOMMIT\n", nil); s != "" {
		t.Errorf("nothing to remove, but %q", s)
	}
}

func TestVersions(t *testing.T) {
	v, err := parseVersions([]byte("# note\n\nA=1.2.3\n B_C=4 \n"))
	if err != nil || v["A"] != "1.2.3" || v["B_C"] != "4" || len(v) != 2 {
		t.Errorf("%v, %v", v, err)
	}
	for _, bad := range []string{"A", "=1", "A="} {
		if _, err := parseVersions([]byte(bad)); err == nil {
			t.Errorf("%q was taken for a version", bad)
		}
	}
}

// source is the folder of the testbed's sources.
func source(t *testing.T) string {
	dir, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestPinnedVersionsAgreeEverywhere(t *testing.T) {
	v, err := readVersions(source(t))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := newPartSet(layout{source: source(t)}, v); err != nil {
		t.Error(err) // names the go.mod file that differs
	}
	s3, err := os.ReadFile(filepath.Join(source(t), "manifests", "s3.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(s3)) {
		if image, ok := strings.CutPrefix(strings.TrimSpace(line), "image: "); ok && image != "localhost/versitygw:"+v["VERSITYGW"] {
			t.Errorf("s3.yaml uses %s, versions.env says %s", image, v["VERSITYGW"])
		}
	}
	cluster, _ := filepath.Glob(filepath.Join(source(t), "manifests", "cluster", "*.yaml"))
	for _, f := range cluster {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if out := expand(b, v); bytes.Contains(out, []byte("${")) {
			t.Errorf("%s names a version that versions.env does not have", f)
		}
	}
}

// What `env` prints goes through a shell's eval, and tests look up one variable for each minor.
func TestExportsNameEveryMinor(t *testing.T) {
	v, err := readVersions(source(t))
	if err != nil {
		t.Fatal(err)
	}
	l := layout{source: source(t), cache: "/ca'che", state: "/st ate"}
	s, err := newPartSet(l, v)
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("sh", "-c", exports(l, s)+`
		echo "$HOLDFAST_TESTBED_KUBECONFIG"
		echo "$HOLDFAST_TESTBED_AUDIT"
		echo "${HOLDFAST_ETCD_3_5%-*} ${HOLDFAST_ETCD_3_6%-*} ${HOLDFAST_ETCD_3_7%-*} ${HOLDFAST_ETCD_3_5_27%-*}"
		echo "${PATH%%:*}"`).CombinedOutput()
	want := "/st ate/admin.kubeconfig\n/st ate/log/audit.log\n/ca'che/etcd-3.5 /ca'che/etcd-3.6 /ca'che/etcd-3.7 /ca'che/etcd-3.5.27\n" + l.programFolder(s) + "\n"
	if err != nil || string(out) != want {
		t.Errorf("%v, %q instead of %q", err, out, want)
	}
}

func TestOneMinorAloneOnRequest(t *testing.T) {
	v, err := readVersions(source(t))
	if err != nil {
		t.Fatal(err)
	}
	apart := func(s *partSet) (names []string) {
		for _, p := range s.parts {
			if p.apart {
				names = append(names, p.name)
			}
		}
		return names
	}
	s, err := newPartSet(layout{source: source(t)}, v)
	if err != nil {
		t.Fatal(err)
	}
	if got := apart(s); !slices.Equal(got, []string{"prometheus"}) {
		t.Errorf("%v are built on request only, wanted prometheus alone", got)
	}
	t.Setenv("HOLDFAST_TESTBED_ETCD", v["CONTROL_PLANE_ETCD"])
	if s, err = newPartSet(layout{source: source(t)}, v); err != nil {
		t.Fatal(err)
	}
	if got := apart(s); !slices.Equal(got, []string{"cert-manager", "robustness", "helm", "prometheus"}) {
		t.Errorf("%v are built on request only, wanted what the stories use as well", got)
	}
	if len(s.minors) != 1 || s.minors[0] != v["CONTROL_PLANE_ETCD"] {
		t.Fatalf("%v, wanted %s alone", s.minors, v["CONTROL_PLANE_ETCD"])
	}
}

// Pods of every minor start from one repository, by the version alone.
func TestEveryMinorHasAnImage(t *testing.T) {
	v, err := readVersions(source(t))
	if err != nil {
		t.Fatal(err)
	}
	l := layout{source: source(t), cache: "/cache"}
	s, err := newPartSet(l, v)
	if err != nil {
		t.Fatal(err)
	}
	images := testbedImages(l, s, v)
	for _, variable := range []string{"ETCD_3_5", "ETCD_3_6", "ETCD_3_7", "ETCD_3_5_27", "ETCD_3_6_11", "ETCD_3_7_1"} {
		name := "gcr.io/etcd-development/etcd:v" + v[variable]
		if !slices.ContainsFunc(images, func(m image) bool { return m.Name == name }) {
			t.Errorf("no image %s", name)
		}
	}
}

func TestAuditLogIsNotEmptiedUnderTheAPIServer(t *testing.T) {
	if auditMebibytes<<20 >= logLimit {
		t.Errorf("it is rotated at %d MiB, but logs of %d bytes are emptied", auditMebibytes, logLimit)
	}
}

func TestKeyFollowsTheSources(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	key := func() string {
		k, err := hashFiles(dir, []string{"."})
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	write("a.go", "1")
	first := key()
	write("a_test.go", "x")
	write("README.md", "x")
	if key() != first {
		t.Error("a test or a text changed the key")
	}
	write("a.go", "2")
	second := key()
	write("b.go", "")
	if second == first || key() == second {
		t.Error("a changed or new source did not change the key")
	}
}

func TestImageIsTheSameEachTime(t *testing.T) {
	file := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(file, []byte("binary"), 0o700); err != nil {
		t.Fatal(err)
	}
	m := image{Name: "localhost/x:1", Files: append([]imageFile{{Path: "/usr/bin/x", Source: file, Mode: 0o755}}, base...)}
	var one, two bytes.Buffer
	d1, err1 := m.writeArchive(&one)
	d2, err2 := m.writeArchive(&two)
	if err1 != nil || err2 != nil || d1 != d2 || !bytes.Equal(one.Bytes(), two.Bytes()) {
		t.Errorf("two archives of one image differ: %s %s %v %v", d1, d2, err1, err2)
	}
	if err := os.WriteFile(file, []byte("other"), 0o700); err != nil {
		t.Fatal(err)
	}
	if d3, _ := m.writeArchive(io.Discard); d3 == d1 {
		t.Error("another content has the same digest")
	}
}

func TestFoldersComeBeforeTheirFiles(t *testing.T) {
	all := withParents([]imageFile{{Path: "/b/c/d"}, {Path: "/b/a"}, {Path: "/tmp/", Mode: 0o1777}})
	var paths []string
	for _, f := range all {
		paths = append(paths, f.Path)
	}
	if want := []string{"/b/", "/b/a", "/b/c/", "/b/c/d", "/tmp/"}; !slices.Equal(paths, want) {
		t.Errorf("got %v", paths)
	}
}

func TestOtherCheckoutsDoNotFight(t *testing.T) {
	l := layout{state: t.TempDir(), run: t.TempDir(), source: "/one"}
	mine := &partSet{key: "k1", base: "b1"}
	if err := claim(l, mine); err != nil {
		t.Fatal(err)
	}
	other := l
	other.source = "/two"
	for _, c := range []struct {
		what string
		from layout
		set  *partSet
		may  bool
	}{
		{"the same again", l, mine, true},
		{"another image", l, &partSet{key: "k2", base: "b1"}, true},
		{"another cluster", l, &partSet{key: "k2", base: "b2"}, false},
		{"another checkout, same sources", other, mine, true},
		{"another checkout, another image", other, &partSet{key: "k2", base: "b1"}, false},
		{"another state folder", layout{state: t.TempDir(), run: l.run, source: "/one"}, mine, false},
	} {
		if err := mayUse(c.from, c.set); (err == nil) != c.may {
			t.Errorf("%s: %v", c.what, err)
		}
	}
	if mayEnd(l, "k3", false) != nil || mayEnd(other, "k1", false) != nil || mayEnd(other, "k3", true) != nil {
		t.Error("who may end it cannot")
	}
	if mayEnd(other, "k3", false) == nil {
		t.Error("another checkout ended it without being forced")
	}
}
