package main

// What is left when the testbed was killed, cut short or lost its machine. These
// tests work on folders and processes of their own; what needs a running testbed
// is in the README's promise and tried there.

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func testLayout(t *testing.T) layout {
	dir := t.TempDir()
	l := layout{source: "/one", state: filepath.Join(dir, "state"), run: filepath.Join(dir, "run"),
		cniResults: filepath.Join(dir, "cni-results"), shims: filepath.Join(dir, "shims")}
	for _, d := range []string{l.state, l.run, l.cniResults, l.shims} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return l
}

func put(t *testing.T, path, content string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o644)); err != nil {
		t.Fatal(err)
	}
}

func there(path string) bool {
	_, err := os.Lstat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

// socket makes one; a dead one is what a killed process leaves.
func socket(t *testing.T, path string, dead bool) {
	t.Helper()
	s, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
	if err != nil {
		t.Fatal(err)
	}
	if dead {
		s.SetUnlinkOnClose(false)
		s.Close()
		return
	}
	t.Cleanup(func() { s.Close() })
}

func TestOfAnEarlierBootOnlyTheKernelIsForgotten(t *testing.T) {
	l := testLayout(t)
	put(t, l.bootFile(), "another boot\n")
	task := l.inRun("containerd", "io.containerd.runtime.v2.task", "k8s.io", "abc")
	put(t, task+"/address", "unix://"+filepath.Join(l.shims, "named"))
	socket(t, filepath.Join(l.shims, "named"), true)
	for _, f := range []string{l.pidFile("etcd"), l.inState("applied"), filepath.Join(l.ipamFolder(), clusterName, "10.88.77.5"),
		filepath.Join(l.kubeletRoot(), "cpu_manager_state"), l.containerdSocket(), filepath.Join(l.cniResults, cniNetwork+"-abc-eth0"),
		filepath.Join(l.cniResults, "cni-loopback-abc-lo")} {
		put(t, f, "1")
		defer func() {
			if there(f) {
				t.Errorf("%s is still there", f)
			}
		}()
	}
	for _, f := range []string{l.lockFile(), l.stateInRun(), filepath.Join(l.volumeFolder(), "v.img"), l.inState("etcd", "member"),
		l.inState("pki", "ca.crt"), l.inState("chains-before"), l.inState("folders-made"), filepath.Join(l.cniResults, "cni-loopback-other-lo")} {
		put(t, f, "1")
		defer func() {
			if !there(f) {
				t.Errorf("%s is gone", f)
			}
		}()
	}
	if sameBoot(l) {
		t.Error("another boot was taken for this one")
	}
	if err := forgetEarlierBoot(l); err != nil {
		t.Fatal(err)
	}
	if !sameBoot(l) || there(task) || there(filepath.Join(l.shims, "named")) {
		t.Error("the boot was not noted, or containerd's state or a shim's socket was kept")
	}
	// And in the same boot nothing is.
	put(t, l.pidFile("etcd"), "1")
	if err := forgetEarlierBoot(l); err != nil || !there(l.pidFile("etcd")) {
		t.Errorf("something of this boot was forgotten: %v", err)
	}
	os.Remove(l.pidFile("etcd"))
}

func TestOnlySocketsThatNobodyListensOnGo(t *testing.T) {
	l := testLayout(t)
	dead, live, file := filepath.Join(l.shims, "dead"), filepath.Join(l.shims, "live"), filepath.Join(l.shims, "file")
	socket(t, dead, true)
	socket(t, live, false)
	put(t, file, "")
	if err := removeShimSockets(l); err != nil {
		t.Fatal(err)
	}
	if there(dead) || !there(live) || !there(file) {
		t.Errorf("dead %v, live %v, file %v", there(dead), there(live), there(file))
	}
	l.shims = filepath.Join(l.shims, "none")
	if err := removeShimSockets(l); err != nil {
		t.Errorf("no folder of sockets: %v", err)
	}
}

func TestThereIsOneSupervisor(t *testing.T) {
	l := testLayout(t)
	one, err := tryLock(l.supervisorLock())
	if err != nil || one == nil {
		t.Fatalf("%v, %v", one, err)
	}
	if two, err := tryLock(l.supervisorLock()); two != nil || err != nil {
		t.Errorf("a second one: %v, %v", two, err)
	}
	one.release()
	if three, err := tryLock(l.supervisorLock()); three == nil || err != nil {
		t.Errorf("after the first has ended: %v, %v", three, err)
	}
}

func start(t *testing.T, args ...string) procID {
	t.Helper()
	cmd := exec.Command(args[0], args[1:]...)
	if err := cmd.Start(); err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	id, err := identify(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func TestProcessWithoutPidFileIsFound(t *testing.T) {
	args := []string{"/bin/sleep", "61.5"}
	id := start(t, args...)
	for end := time.Now().Add(5 * time.Second); ; time.Sleep(10 * time.Millisecond) { // the new process has our arguments until it has its own
		if found, ok := findByArgs([]int{os.Getpid(), id.pid}, args); ok && found == id {
			break
		}
		if time.Now().After(end) {
			t.Fatal("it was not found")
		}
	}
	for _, other := range [][]string{{"/bin/sleep"}, {"/bin/sleep", "61.5", "x"}, {"/bin/sleep", "61"}} {
		if found, ok := findByArgs([]int{id.pid}, other); ok {
			t.Errorf("%v was taken for %v", found, other)
		}
	}
	if _, ok := findByArgs([]int{1 << 30}, args); ok {
		t.Error("a process that does not exist was found")
	}
}

func TestStoppedProcessGoesOn(t *testing.T) {
	l := testLayout(t)
	id := start(t, "/bin/sleep", "61.5")
	if err := l.writePid("etcd", id); err != nil {
		t.Fatal(err)
	}
	state := func() byte {
		b, _ := os.ReadFile("/proc/" + strings.Fields(id.String())[0] + "/stat")
		s, _, _ := statFields(string(b))
		return s
	}
	if was, err := id.wake(); was || err != nil {
		t.Errorf("a running process was woken: %v", err)
	}
	if err := exec.Command("kill", "-STOP", strings.Fields(id.String())[0]).Run(); err != nil {
		t.Skip(err)
	}
	for end := time.Now().Add(5 * time.Second); state() != 'T' && time.Now().Before(end); time.Sleep(time.Millisecond) {
	}
	if other := (procID{id.pid, id.start + 1}); state() == 'T' {
		if was, err := other.wake(); was || err != nil || state() != 'T' {
			t.Errorf("another's process was woken: %v", err)
		}
	}
	if err := wakeStopped(l, []process{{Name: "etcd"}, {Name: "containerd"}}); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(5 * time.Second); state() == 'T'; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it is still stopped")
		}
	}
}

func TestFrozenGroupsThaw(t *testing.T) {
	dir := t.TempDir()
	read := func(name string) string {
		b, _ := os.ReadFile(filepath.Join(dir, name))
		return string(b)
	}
	thaw(dir)
	if there(filepath.Join(dir, "freezer.state")) || there(filepath.Join(dir, "cgroup.freeze")) {
		t.Error("a freezer was made where there is none")
	}
	put(t, filepath.Join(dir, "freezer.self_freezing"), "0\n")
	put(t, filepath.Join(dir, "freezer.state"), "FROZEN\n") // by its parent
	put(t, filepath.Join(dir, "cgroup.freeze"), "1\n")
	thaw(dir)
	if read("freezer.state") != "FROZEN\n" || read("cgroup.freeze") != "0" {
		t.Errorf("%q, %q", read("freezer.state"), read("cgroup.freeze"))
	}
	put(t, filepath.Join(dir, "freezer.self_freezing"), "1\n")
	thaw(dir)
	if read("freezer.state") != "THAWED" {
		t.Errorf("%q", read("freezer.state"))
	}
}

func TestDownThatWasCutShortIsNobodysTestbed(t *testing.T) {
	l := testLayout(t)
	mine := &partSet{key: "k1", base: "b1"}
	if err := claim(l, mine); err != nil {
		t.Fatal(err)
	}
	other := l
	other.source = "/two"
	theirs := &partSet{key: "k2", base: "b2"}
	if cutShort(l) || mayUse(other, theirs) == nil {
		t.Fatal("a whole testbed counts as one that is being removed")
	}
	put(t, l.endingFile(), "")
	if err := mayUse(other, theirs); err != nil || !cutShort(l) {
		t.Errorf("what is left cannot be ended by who comes next: %v", err)
	}
	if err := mayEnd(other, theirs.key, false); err != nil {
		t.Error(err)
	}
	put(t, l.inState("etcd", "member"), "half of it")
	if err := removeState(l); err != nil || there(l.state) {
		t.Errorf("the state is still there: %v", err)
	}
	if err := removeState(l); err != nil {
		t.Errorf("nothing to remove: %v", err)
	}
}

func TestUnreadableOwnerCanBeForced(t *testing.T) {
	l := testLayout(t)
	put(t, l.ownerFile(), "")
	if mayUse(l, &partSet{key: "k"}) == nil || mayEnd(l, "k", false) == nil {
		t.Error("it was read")
	}
	if err := mayEnd(l, "k", true); err != nil {
		t.Error(err)
	}
}

func TestStateFolderHasItsRealPath(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Mkdir(filepath.Join(dir, "disk"), 0o755), os.Symlink("disk", filepath.Join(dir, "link")),
		os.Symlink("nowhere", filepath.Join(dir, "broken"))); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{"disk": "disk", "link": "disk", "link/a/b": "disk/a/b", "x/y": "x/y"} {
		if got, err := realPath(filepath.Join(dir, path)); err != nil || got != filepath.Join(dir, want) {
			t.Errorf("%s: %s, %v", path, got, err)
		}
	}
	if got, err := realPath(filepath.Join(dir, "broken")); err == nil {
		t.Errorf("a link to nothing: %s", got)
	}
	if inside("/a", "/a") || !inside("/a/b", "/a") || inside("/ab", "/a") {
		t.Error("inside() takes the folder itself, or misses what is in it")
	}
}

func TestGuardIsNeverSomebodyElses(t *testing.T) {
	before := chainsBefore("iptables", rules)
	slices.Sort(before)
	if want := []string{"iptables filter KUBE-FIREWALL", "iptables filter KUBE-OTHERS", "iptables nat CNI-0123"}; !slices.Equal(before, want) {
		t.Errorf("there before: %v", before)
	}
	script := removal(rules, func(table, chain string) bool { return chain != guardChain })
	if !strings.Contains(script, "-X "+guardChain) || strings.Contains(script, "KUBE-") || strings.Contains(script, "CNI-") {
		t.Errorf("without a record only the guard may go, but\n%s", script)
	}
}
