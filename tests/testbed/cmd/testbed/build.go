package main

// Builds the parts into the cache. It decides how (flags, order, where, what a
// person sees meanwhile), not what: that is parts.go's.

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

// All programs are static, because most of them go into images made from
// nothing. The flags are the same everywhere so that modules that agree on a
// package's version compile it once.
var buildFlags = []string{"-mod=readonly", "-trimpath", "-buildvcs=false"}

const progressEvery = 10 * time.Second

// build makes the parts of the testbed that the cache lacks and the folder of programs for people.
func build(l layout, s *partSet) error {
	var parts []*part
	for _, p := range s.parts {
		if !p.apart {
			parts = append(parts, p)
		}
	}
	if err := buildParts(l, parts); err != nil {
		return err
	}
	return linkPrograms(l, s)
}

// buildParts makes those that the cache lacks.
func buildParts(l layout, parts []*part) error {
	if !slices.ContainsFunc(parts, func(p *part) bool { return !built(l, p) }) {
		return nil
	}
	return buildMissing(l, parts)
}

func built(l layout, p *part) bool {
	_, err := os.Stat(l.partFolder(p))
	return err == nil
}

func buildMissing(l layout, parts []*part) error {
	if err := os.MkdirAll(l.cache, 0o755); err != nil {
		return err
	}
	lock, err := acquireLock(filepath.Join(l.cache, "lock"), "another build")
	if err != nil {
		return err
	}
	defer lock.release()
	// Whoever holds the lock owns all unfinished builds: these were cut short.
	leftovers, _ := filepath.Glob(filepath.Join(l.cache, ".part-*"))
	for _, f := range leftovers {
		if err := os.RemoveAll(f); err != nil {
			return err
		}
	}
	var todo []*part // looked at again, now that other builds are over
	var usual time.Duration
	for _, p := range parts {
		if !built(l, p) {
			todo = append(todo, p)
			usual += p.usual
		}
	}
	if len(todo) == 0 {
		return nil
	}
	say("building %d of %d parts into %s (from clean caches usually %s on two cores)", len(todo), len(parts), l.cache, usual)
	for i, p := range todo {
		if err := buildPart(l, p, i+1, len(todo)); err != nil {
			return err
		}
	}
	return nil
}

// buildPart builds in a folder of another name and renames it when all of the
// part's programs are there, so a build that is cut short leaves nothing that
// looks finished. Go's own build cache keeps what was compiled.
func buildPart(l layout, p *part, n, of int) error {
	tmp, err := os.MkdirTemp(l.cache, ".part-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	log := filepath.Join(l.cache, p.name+".log")
	out, err := os.Create(log)
	if err != nil {
		return err
	}
	defer out.Close()

	head := fmt.Sprintf("[%d/%d] %s", n, of, p.name)
	say("%s: building, usually %s", head, p.usual)
	start := time.Now()
	done := make(chan struct{})
	defer close(done)
	go func() {
		tick := time.NewTicker(progressEvery)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				say("%s: %s so far of usually %s", head, time.Since(start).Round(time.Second), p.usual)
			case <-done:
				return
			}
		}
	}()
	// A build that is killed must not leave a compiler at work. The signal comes
	// when the starting thread ends, so this goroutine keeps its thread.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	run := func(stdout io.Writer, args ...string) error {
		cmd := exec.Command("go", args...)
		cmd.Dir = filepath.Join(l.source, p.folder)
		// A person's own settings (a workspace, another -mod) must not change what is built.
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off", "GOOS=linux")
		cmd.Stdout, cmd.Stderr = stdout, out
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
		return cmd.Run()
	}
	for _, target := range p.programs {
		args := slices.Concat([]string{"build"}, buildFlags, p.flags)
		args = append(args, "-ldflags", "-s -w"+p.ldflags, "-o", filepath.Join(tmp, target.name), target.pkg)
		if err := run(out, args...); err != nil {
			return fmt.Errorf("building %s of %s: %w; read %s", target.name, p.name, err, log)
		}
	}
	for _, wanted := range p.copies {
		var dir strings.Builder
		if err := run(&dir, "list", "-m", "-mod=readonly", "-f", "{{.Dir}}", wanted.module); err != nil {
			return fmt.Errorf("looking for the files of %s: %w; read %s", wanted.module, err, log)
		}
		from := filepath.Join(strings.TrimSpace(dir.String()), wanted.folder)
		if err := os.CopyFS(filepath.Join(tmp, wanted.name), os.DirFS(from)); err != nil {
			return err
		}
	}
	if err := os.Chmod(tmp, 0o755); err != nil {
		return err
	}
	if err := os.Rename(tmp, l.partFolder(p)); err != nil {
		return err
	}
	say("%s: done after %s", head, time.Since(start).Round(time.Second/10))
	return nil
}

// linkPrograms makes the folder that `env` puts into PATH.
func linkPrograms(l layout, s *partSet) error {
	links := map[string]string{
		"kubectl":        s.binary(l, "kube", "kube"),
		"etcd":           s.binary(l, s.usualEtcd, "etcd"),
		"etcdctl":        s.binary(l, s.usualEtcd, "etcdctl"),
		"etcdutl":        s.binary(l, s.usualEtcd, "etcdutl"),
		"versitygw":      s.binary(l, "versitygw", "versitygw"),
		"holdfast-probe": s.binary(l, "probe", "holdfast-probe"),
	}
	if !s.byName["helm"].apart {
		links["helm"] = s.binary(l, "helm", "helm")
	}
	dir := l.programFolder(s)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for name, target := range links {
		link := filepath.Join(dir, name)
		if have, _ := os.Readlink(link); have == target {
			continue
		}
		if err := os.Remove(link); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		if err := os.Symlink(target, link); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	return nil
}

func (l layout) programFolder(s *partSet) string { return filepath.Join(l.cache, s.key, "bin") }
