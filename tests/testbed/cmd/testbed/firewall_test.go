package main

import (
	"errors"
	"net"
	"runtime"
	"syscall"
	"testing"
	"time"
)

// In a network where every address answers, as behind a proxy that takes all of
// them for its own, a Service without a translation does not.
func TestServicesWithoutATranslationAreNotLookedForOutside(t *testing.T) {
	// The thread has another network from here on; it is never given back and ends with the test.
	runtime.LockOSThread()
	if err := syscall.Unshare(syscall.CLONE_NEWNET); err != nil {
		t.Fatal(err)
	}
	for _, command := range [][]string{
		{"ip", "link", "set", "lo", "up"},
		{"ip", "route", "add", "local", "default", "dev", "lo"},
	} {
		if err := run(command[0], command[1:]...); err != nil {
			t.Fatal(err)
		}
	}
	listener, err := net.Listen("tcp4", "0.0.0.0:2379")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	dial := func(host string) error {
		conn, err := net.DialTimeout("tcp4", net.JoinHostPort(host, "2379"), 5*time.Second)
		if err == nil {
			conn.Close()
		}
		return err
	}
	const service, elsewhere = "10.96.200.200", "198.51.100.1"
	if err := errors.Join(dial(service), dial(elsewhere)); err != nil {
		t.Fatalf("not the network this is about: %v", err)
	}
	l := testLayout(t)
	if err := setUpFirewall(l); err != nil {
		t.Fatal(err)
	}
	if err := dial(service); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("a Service that nobody translates: %v", err)
	}
	if err := dial(elsewhere); err != nil {
		t.Errorf("an address that is none of ours: %v", err)
	}
	rules, err := saved("iptables")
	if err != nil {
		t.Fatal(err)
	}
	if script := guard(rules); script != "" {
		t.Errorf("set up, and yet it wants\n%s", script)
	}
	if err := removeFirewall(l); err != nil {
		t.Fatal(err)
	}
	if err := dial(service); err != nil {
		t.Errorf("taken away, and yet: %v", err)
	}
}
