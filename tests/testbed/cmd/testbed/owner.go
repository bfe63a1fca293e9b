package main

// Whose testbed it is: lets several checkouts share a machine without fighting.
// One testbed runs on a machine at a time. Checkouts with the same sources may
// share it; others are told how to end it. The checkout that started it may go on
// with it after a change that concerns images only (the probe, say): those are
// loaded anew. After other changes it too has to end it first.

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

type owner struct {
	Key    string // of the sources it runs
	Base   string // of those that only `down` and `up` can replace
	Source string // the tests/testbed folder it was started from
}

func (l layout) ownerFile() string  { return l.inState("owner.json") }
func (l layout) stateInRun() string { return l.inRun("state") } // names the state folder that the sockets belong to
func (l layout) lockFile() string   { return l.inRun("lock") }
func (o owner) command(l layout) string {
	command := filepath.Join(o.Source, "testbed")
	if l.state != "/var/lib/holdfast-testbed" {
		command = "HOLDFAST_STATE=" + l.state + " " + command
	}
	return command
}

func readOwner(l layout) (owner, bool, error) {
	var o owner
	b, err := os.ReadFile(l.ownerFile())
	if errors.Is(err, fs.ErrNotExist) {
		return o, false, nil
	} else if err != nil {
		return o, false, err
	}
	if err := json.Unmarshal(b, &o); err != nil {
		return o, false, fmt.Errorf("%s: %w", l.ownerFile(), err)
	}
	return o, true, nil
}

// mayUse says whether `up` from here may work on the testbed that is there, if any.
func mayUse(l layout, s *partSet) error {
	if err := checkStateFolder(l); err != nil {
		return err
	}
	if cutShort(l) { // nobody's any more: `up` finishes the `down`
		return nil
	}
	o, taken, err := readOwner(l)
	if err != nil || !taken || o.Key == s.key || o.Source == l.source && o.Base == s.base {
		return err
	}
	if o.Source == l.source {
		return fmt.Errorf("the testbed in %s runs what the sources here were before: end it with `%s down`, then bring it up again", l.state, o.command(l))
	}
	return fmt.Errorf("a testbed made from other sources (%s, key %s; these have %s) is in %s: end it with `%s down`, or with `down --force` from here",
		o.Source, o.Key, s.key, l.state, o.command(l))
}

// claim makes the testbed this one's. The lock must be held.
func claim(l layout, s *partSet) error {
	if err := mayUse(l, s); err != nil {
		return err
	}
	if err := writeFile(l.stateInRun(), []byte(l.state+"\n"), 0o644); err != nil {
		return err
	}
	o, taken, err := readOwner(l)
	if err != nil || taken && o.Key == s.key {
		return err
	}
	if !taken {
		if err := recordFolders(l); err != nil {
			return err
		}
	}
	return writeFile(l.ownerFile(), mustJSON(owner{s.key, s.base, l.source}), 0o644)
}

// mayEnd says whether `down` from here ends this testbed without being forced:
// the checkout that started it may, whatever its sources are now, and so may one
// with the same sources.
func mayEnd(l layout, key string, force bool) error {
	if err := checkStateFolder(l); err != nil {
		return err
	}
	if force || cutShort(l) { // also when nobody can tell whose it is
		return nil
	}
	o, taken, err := readOwner(l)
	if err != nil || !taken || o.Key == key || o.Source == l.source {
		return err
	}
	return fmt.Errorf("the testbed in %s was started from %s, with other sources: end it with `%s down`, or with `down --force` from here",
		l.state, o.Source, o.command(l))
}

// checkStateFolder refuses to touch a testbed that another state folder belongs to.
func checkStateFolder(l layout) error {
	b, err := os.ReadFile(l.stateInRun())
	other := strings.TrimSpace(string(b))
	if err != nil || other == l.state {
		return nil
	}
	elsewhere := l
	elsewhere.state = other
	o, taken, err := readOwner(elsewhere)
	if err != nil || !taken {
		return err // its state folder is gone, and the testbed with it
	}
	return fmt.Errorf("this machine's testbed has its state in %s: end it with `%s down`", other, o.command(elsewhere))
}
