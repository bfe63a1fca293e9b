// Program testbed runs a real Kubernetes on one Linux machine, built from source,
// for the project's tests. This file decides which verb does what; the others
// are one concern each.
package main

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

const usage = `usage: testbed VERB

  build                 build all parts into the cache
  part NAME             build one part alone, and print its folder
  up                    bring the testbed up; also repairs one that is broken
  down [--force]        end it and remove all it left on the machine
  status                one line for each component
  env                   shell exports: kubeconfig, audit log, each etcd minor's folder, PATH
  kubectl ARG...        kubectl on this testbed
  load-image FILE.tar   load an image archive (Docker's or OCI's form)
  image NAME SOURCE:PATH... [-- ENTRYPOINT...]
                        make an image of files of this machine and load it
`

var began = time.Now()

// say tells a person what happens; standard output is for what a program reads.
func say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "testbed %6.1fs  %s\n", time.Since(began).Seconds(), fmt.Sprintf(format, args...))
}

// run runs a command to its end; the error holds what it printed.
func run(name string, args ...string) error {
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}

func main() {
	if err := testbedMain(os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "testbed: %v\n", err)
		os.Exit(1)
	}
}

func testbedMain(args []string) error {
	if len(args) == 0 || args[0] == "help" || args[0] == "-h" || args[0] == "--help" {
		fmt.Print(usage)
		return nil
	}
	verb, args := args[0], args[1:]
	l, err := newLayout()
	if err != nil {
		return err
	}
	if verb == "supervise" { // not for people: the background process that `up` starts
		return superviseMain(l)
	}
	v, err := readVersions(l.source)
	if err != nil {
		return err
	}
	s, err := newPartSet(l, v)
	if err != nil {
		return err
	}
	switch verb {
	case "build":
		if err := installPackages(); err != nil {
			return err
		}
		if err := buildParts(l, s.parts); err != nil {
			return err
		}
		return build(l, s)
	case "part":
		if len(args) != 1 || s.byName[args[0]] == nil {
			return fmt.Errorf("part needs the name of one: a folder's of tests/testbed/modules, or probe")
		}
		p := s.byName[args[0]]
		if err := buildParts(l, []*part{p}); err != nil {
			return err
		}
		fmt.Println(l.partFolder(p))
		return nil
	case "env":
		if err := build(l, s); err != nil {
			return err
		}
		fmt.Print(exports(l, s))
		return nil
	case "kubectl":
		if err := build(l, s); err != nil {
			return err
		}
		cmd := kubectl(l, s, args...)
		return syscall.Exec(cmd.Path, cmd.Args, cmd.Env)
	}
	if os.Geteuid() != 0 {
		return fmt.Errorf("%s needs root: it makes mounts, a bridge and control groups", verb)
	}
	switch verb {
	case "up":
		return up(l, s, v)
	case "down":
		return down(l, s.key, len(args) > 0 && args[0] == "--force")
	case "status":
		well, err := status(l, s)
		if err == nil && !well {
			os.Exit(1)
		}
		return err
	case "load-image":
		return loadImageMain(l, args)
	case "image":
		return imageMain(l, args)
	}
	fmt.Fprint(os.Stderr, usage)
	return fmt.Errorf("no verb %q", verb)
}
