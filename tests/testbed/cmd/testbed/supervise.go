package main

// The supervisor: one process that keeps all the host processes of a testbed
// running. It decides when one is started and started again; which ones there
// are, and with which flags, it reads from a file that `up` writes.
//
// Its own death disturbs nothing: the processes live on, and the next supervisor
// finds them by their pid files and watches them as if it had started them. There
// is never more than one: two would start everything twice.

import (
	"encoding/json"
	"fmt"
	"log"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	supervisorName = "supervisor"
	logLimit       = 64 << 20
	needAPI        = "api"
)

// A process is one host process of the testbed.
type process struct {
	Name  string
	Args  []string
	Env   []string `json:",omitempty"`
	Needs []string `json:",omitempty"` // what must work before it is started: "tcp:HOST:PORT", "unix:PATH" or "api"
}

func (l layout) processFile() string    { return l.inState("processes.json") }
func (l layout) supervisorLock() string { return l.inState("supervisor.lock") }

// superviseMain is the supervisor's life. It ends only by a signal.
func superviseMain(l layout) error {
	only, err := tryLock(l.supervisorLock())
	for end := time.Now().Add(5 * time.Second); err == nil && only == nil; only, err = tryLock(l.supervisorLock()) {
		if time.Now().After(end) { // one that was killed a moment ago may have it still
			return fmt.Errorf("another supervisor is at work already")
		}
		time.Sleep(50 * time.Millisecond)
	}
	if err != nil {
		return err
	}
	defer only.release()
	// Here and not in `up`, which may be killed when it has just started us.
	self, err := identify(os.Getpid())
	if err == nil {
		err = l.writePid(supervisorName, self)
	}
	if err != nil {
		return err
	}
	b, err := os.ReadFile(l.processFile())
	if err != nil {
		return err
	}
	var processes []process
	if err := json.Unmarshal(b, &processes); err != nil {
		return fmt.Errorf("%s: %w", l.processFile(), err)
	}
	// All that is started from here on inherits the control group, containers' shims included.
	if err := enterCgroups(); err != nil {
		return err
	}
	go l.limitLogs()
	var all sync.WaitGroup
	for _, p := range processes {
		all.Go(func() { l.keepRunning(p) })
	}
	all.Wait()
	return nil
}

// keepRunning starts the process again whenever it ends: at once if it had been
// up for a while, more and more slowly if it fails over and over.
func (l layout) keepRunning(p process) {
	const least, most = 200 * time.Millisecond, 5 * time.Second
	for pause := least; ; {
		begin := time.Now()
		id, ok := l.readPid(p.Name)
		if !ok {
			id, ok = l.adopt(p)
		}
		if ok {
			log.Printf("%s: watching process %d", p.Name, id.pid)
			for id.alive() {
				time.Sleep(200 * time.Millisecond)
			}
			log.Printf("%s: process %d ended", p.Name, id.pid)
		} else {
			l.waitForNeeds(p)
			begin = time.Now()
			log.Printf("%s: %v", p.Name, l.runOnce(p))
		}
		if time.Since(begin) > 10*time.Second {
			pause = least
		}
		time.Sleep(pause)
		pause = min(2*pause, most)
	}
}

// adopt finds a process that runs without a pid file: its supervisor was killed
// between starting it and noting that. A second one would fail over and over.
func (l layout) adopt(p process) (procID, bool) {
	id, ok := findByArgs(cgroupPids(true), p.Args)
	if !ok {
		return id, false
	}
	if err := l.writePid(p.Name, id); err != nil {
		log.Printf("%s: process %d is at work, but: %v", p.Name, id.pid, err)
	}
	return id, true
}

// waitForNeeds gives up after a while and lets the process say itself what it misses.
func (l layout) waitForNeeds(p process) {
	end := time.Now().Add(30 * time.Second)
	for _, need := range p.Needs {
		for l.lacks(need) && time.Now().Before(end) {
			time.Sleep(50 * time.Millisecond)
		}
	}
}

func (l layout) lacks(need string) bool {
	// The API server listens seconds before it has made its roles, and most of
	// its clients end, or wait for long, when they are refused.
	if need == needAPI {
		api, err := newAPIClient(l)
		return err != nil || api.ready() != nil
	}
	network, address, _ := strings.Cut(need, ":")
	c, err := net.DialTimeout(network, address, time.Second)
	if err != nil {
		return true
	}
	c.Close()
	return false
}

// runOnce gives how the process ended.
func (l layout) runOnce(p process) error {
	out, err := os.OpenFile(l.logFile(p.Name), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer out.Close()
	cmd := exec.Command(p.Args[0], p.Args[1:]...)
	cmd.Dir = l.state
	// Memory for time: all of these are Go, and on two cores their garbage collectors take a good part of one.
	cmd.Env = append([]string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "GOGC=400"}, p.Env...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	log.Printf("%s: started process %d", p.Name, cmd.Process.Pid)
	id, err := identify(cmd.Process.Pid) // it cannot be gone before Wait
	if err == nil {
		err = l.writePid(p.Name, id)
	}
	if err != nil { // a process that nobody could find again must not run
		cmd.Process.Kill()
		cmd.Wait()
		return err
	}
	if err := cmd.Wait(); err != nil {
		return err
	}
	return fmt.Errorf("ended by itself")
}

// limitLogs empties logs that have grown too large. They are written in append
// mode, so their writers go on at the new end.
func (l layout) limitLogs() {
	for ; ; time.Sleep(time.Minute) {
		entries, _ := os.ReadDir(l.inState("log"))
		for _, e := range entries {
			if info, err := e.Info(); err == nil && info.Size() > logLimit {
				os.Truncate(l.inState("log", e.Name()), 0)
			}
		}
	}
}

// startSupervisor makes sure that one runs and that it runs these processes. It
// returns when the supervisor has said who it is.
func startSupervisor(l layout, processes []process) error {
	b, err := json.MarshalIndent(processes, "", "\t")
	if err != nil {
		return err
	}
	if err := writeFile(l.processFile(), b, 0o644); err != nil {
		return err
	}
	if _, ok := l.readPid(supervisorName); ok {
		return nil
	}
	out, err := os.OpenFile(l.logFile(supervisorName), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer out.Close()
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(self, "supervise")
	cmd.Dir = "/"
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	err = waitFor("the supervisor", l.logFile(supervisorName), 10*time.Second, func() error {
		if _, ok := l.readPid(supervisorName); !ok {
			return fmt.Errorf("it has not said who it is")
		}
		return nil
	})
	if err == nil {
		return nil
	}
	select {
	case how := <-ended:
		return fmt.Errorf("the supervisor ended at once: %v; read %s", how, l.logFile(supervisorName))
	default:
		return err
	}
}

// wakeStopped lets all that is stopped go on.
func wakeStopped(l layout, processes []process) error {
	for _, name := range append([]string{supervisorName}, processNames(processes)...) {
		id, ok := l.readPid(name)
		if !ok {
			continue
		}
		was, err := id.wake()
		if err != nil {
			return fmt.Errorf("waking %s: %w", name, err)
		}
		if was {
			say("%s was stopped: process %d goes on", name, id.pid)
		}
	}
	return nil
}
