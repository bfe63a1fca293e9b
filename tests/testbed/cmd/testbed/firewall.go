package main

// Packet filter rules: adds the one chain that keeps the testbed to this machine,
// in both directions, and takes away, at the end, that chain and those that Kubernetes and the CNI
// plugins made. What those chains say meanwhile is theirs.

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"slices"
	"strings"
)

const guardChain = "HOLDFAST-TESTBED"

// setUpFirewall keeps others out and the testbed in.
//
// Connections to the testbed's addresses from outside are dropped: the bridge's
// address belongs to the machine, and the machine forwards, so a neighbour with a
// route to them could else reach the API server and the Pods.
//
// A connection to a Service that kube-proxy has no translation for is refused. It
// puts a new Service's rules in place table by table, so for a moment nothing
// stands between the Service's address and the default route; and beyond that
// something may answer, a proxy that takes every address for one.
func setUpFirewall(l layout) error {
	if err := l.recordChains(); err != nil {
		return err
	}
	rules, err := saved("iptables")
	if err != nil {
		return err
	}
	if script := guard(rules); script != "" {
		return restore("iptables", script)
	}
	return nil
}

// guard gives the iptables-restore script that makes our chain and leads what
// concerns it there, and nothing where all of that is in place.
func guard(rules string) string {
	var leading strings.Builder
	// Of what the machine itself sends only Services concern the guard.
	for _, from := range []string{"INPUT", "FORWARD", "OUTPUT -d " + serviceSubnet} {
		if jump := from + " -j " + guardChain; !strings.Contains(rules, "-A "+jump+"\n") {
			leading.WriteString("-I " + jump + "\n")
		}
	}
	if leading.Len() == 0 {
		return ""
	}
	return "*filter\n:" + guardChain + " - [0:0]\n" + leading.String() +
		"-A " + guardChain + " -d " + serviceSubnet + " -m conntrack --ctstate NEW -j REJECT --reject-with icmp-port-unreachable\n" +
		"-A " + guardChain + " -i lo -j RETURN\n" +
		"-A " + guardChain + " -i " + bridgeName + " -j RETURN\n" +
		"-A " + guardChain + " -d " + podSubnet + " -m conntrack --ctstate NEW -j DROP\n" +
		"COMMIT\n"
}

// recordChains notes the chains of the usual names that were there before us
// (another cluster's, say): these stay at the end.
func (l layout) recordChains() error {
	file := l.inState("chains-before")
	if _, err := os.Stat(file); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	var before []string
	for _, tool := range []string{"iptables", "ip6tables"} {
		rules, err := saved(tool)
		if err != nil && tool == "iptables" {
			return err
		}
		before = append(before, chainsBefore(tool, rules)...)
	}
	return writeFile(file, []byte(strings.Join(before, "\n")), 0o644)
}

// chainsBefore leaves the guard out, whose name only a testbed uses: one that is
// there already is left from a testbed whose state somebody has removed.
func chainsBefore(tool, rules string) (before []string) {
	for table, chains := range ourChains(rules, nil) {
		for _, c := range chains {
			if c != guardChain {
				before = append(before, tool+" "+table+" "+c)
			}
		}
	}
	return before
}

func removeFirewall(l layout) error {
	b, err := os.ReadFile(l.inState("chains-before"))
	unknown := errors.Is(err, fs.ErrNotExist) // nothing was set up, or the state was removed by hand
	if err != nil && !unknown {
		return err
	}
	before := strings.Split(string(b), "\n")
	for _, tool := range []string{"iptables", "ip6tables"} {
		rules, err := saved(tool)
		if err != nil {
			if tool == "ip6tables" || unknown {
				continue // a kernel without IPv6, or a machine without iptables
			}
			return err
		}
		keep := func(table, chain string) bool {
			// Without the record others' chains cannot be told from ours, but for the guard.
			return slices.Contains(before, tool+" "+table+" "+chain) || unknown && chain != guardChain
		}
		if script := removal(rules, keep); script != "" {
			if err := restore(tool, script); err != nil {
				return err
			}
		}
	}
	return nil
}

// ourChains picks, table by table, the chains that a testbed makes from what
// iptables-save prints.
func ourChains(rules string, keep func(table, chain string) bool) map[string][]string {
	chains, table := map[string][]string{}, ""
	for line := range strings.Lines(rules) {
		line = strings.TrimSpace(line)
		if t, ok := strings.CutPrefix(line, "*"); ok {
			table = t
		}
		if c, ok := strings.CutPrefix(line, ":"); ok {
			name := strings.Fields(c)[0]
			ours := name == guardChain || strings.HasPrefix(name, "KUBE-") || strings.HasPrefix(name, "CNI-")
			if ours && (keep == nil || !keep(table, name)) {
				chains[table] = append(chains[table], name)
			}
		}
	}
	return chains
}

// removal gives the iptables-restore script that deletes our chains: first the
// rules elsewhere that lead into them, then what is in them, then themselves.
func removal(rules string, keep func(table, chain string) bool) string {
	var script strings.Builder
	ours := ourChains(rules, keep)
	table, leading := "", map[string][]string{}
	for line := range strings.Lines(rules) {
		line = strings.TrimSpace(line)
		if t, ok := strings.CutPrefix(line, "*"); ok {
			table = t
		}
		rule, ok := strings.CutPrefix(line, "-A ")
		if !ok {
			continue
		}
		chain, _, _ := strings.Cut(rule, " ")
		_, target, _ := strings.Cut(rule, " -j ")
		target, _, _ = strings.Cut(target, " ")
		if !slices.Contains(ours[table], chain) && slices.Contains(ours[table], target) {
			leading[table] = append(leading[table], "-D "+rule)
		}
	}
	for table, chains := range ours {
		fmt.Fprintf(&script, "*%s\n", table)
		for _, rule := range leading[table] {
			fmt.Fprintln(&script, rule)
		}
		for _, c := range chains {
			fmt.Fprintf(&script, "-F %s\n", c)
		}
		for _, c := range chains {
			fmt.Fprintf(&script, "-X %s\n", c)
		}
		fmt.Fprintln(&script, "COMMIT")
	}
	return script.String()
}

func saved(tool string) (string, error) {
	out, err := exec.Command(tool + "-save").Output()
	if err != nil {
		return "", fmt.Errorf("%s-save: %w", tool, err)
	}
	return string(out), nil
}

func restore(tool, script string) error {
	cmd := exec.Command(tool+"-restore", "--noflush", "--wait=10")
	cmd.Stdin = strings.NewReader(script)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s-restore: %w: %s\nits input was:\n%s", tool, err, out, script)
	}
	return nil
}
