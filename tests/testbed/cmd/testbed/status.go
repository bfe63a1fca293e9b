package main

// `status`: one line for each component, and what all of it uses. It changes nothing.

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// status gives whether everything is well.
func status(l layout, s *partSet) (bool, error) {
	o, taken, err := readOwner(l)
	if err != nil {
		return false, err
	}
	if !taken {
		fmt.Printf("no testbed in %s\n", l.state)
		return false, nil
	}
	well := true
	line := func(name string, err error, detail string) {
		word := "ok"
		if err != nil {
			word, detail, well = "DOWN", err.Error(), false
		}
		fmt.Printf("%-5s %-24s %s\n", word, name, detail)
	}
	for _, name := range append([]string{supervisorName}, processNames(hostProcesses(l, s))...) {
		id, ok := l.readPid(name)
		if !ok {
			line(name, fmt.Errorf("not running; read %s", l.logFile(name)), "")
			continue
		}
		line(name, nil, fmt.Sprintf("pid %d, %d MiB", id.pid, resident(id.pid)>>20))
	}
	api, err := newAPIClient(l)
	if err != nil {
		return false, err
	}
	line("API server answers", api.ready(), "https://"+apiServer)
	line("node Ready", api.nodeReady(l.startTime("kubelet")), nodeName)
	line("volumes", api.volumesReady(), "StorageClass standard")
	line("cluster DNS", dnsWorks(), dnsServiceIP)

	var all, host int64
	for _, pid := range cgroupPids(false) {
		all += resident(pid)
	}
	for _, pid := range cgroupPids(true) {
		host += resident(pid)
	}
	fmt.Printf("memory: %d MiB on the host, %d MiB in Pods; key %s, started from %s\n", host>>20, (all-host)>>20, o.Key, o.Source)
	if o.Key != s.key {
		fmt.Printf("note: the sources here have key %s\n", s.key)
	}
	return well, nil
}

func processNames(processes []process) []string {
	var names []string
	for _, p := range processes {
		names = append(names, p.Name)
	}
	return names
}

// resident is a process's memory in bytes, shared pages included.
func resident(pid int) int64 {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if f := strings.Fields(string(b)); err == nil && len(f) > 1 {
		pages, _ := strconv.ParseInt(f[1], 10, 64)
		return pages * int64(os.Getpagesize())
	}
	return 0
}
