// Program holdfast-probe asks an etcd cluster, through etcd's own client, for
// what the end-to-end tests assert: so the assertions share no code with the
// project under test. It runs in a Pod or by hand, prints progress on standard
// error and one line of JSON on standard output.
//
// This file decides which verb does what; each verb is in a file of its concern.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// A verb defines its flags and gives what it does with them. Its result is
// printed as JSON, also beside an error, unless it is nil.
type verb struct {
	about string
	setup func(*flag.FlagSet) func(context.Context) (any, error)
}

var verbs = map[string]verb{
	"fill":       {"write a history: puts, overwrites, deletes, leases, a compaction", fillVerb},
	"bulk":       {"write a given amount of data quickly", bulkVerb},
	"digest":     {"hash all keys and leases at one revision", digestVerb},
	"members":    {"list the members, linearizably", membersVerb},
	"dial":       {"open new connections at a rate, one read on each", dialVerb},
	"writer":     {"write numbered keys one after the other and say which were acknowledged", writerVerb},
	"writers":    {"the same from many clients at a time, each with keys of its own", writersVerb},
	"written-by": {"look for the keys that writers has got acknowledged", writtenByVerb},
	"written":    {"look for the keys that writer has got acknowledged", writtenVerb},
	"wait":       {"wait until a linearizable read succeeds", waitVerb},
	"put":        {"put one key", putVerb},
	"get":        {"get one key", getVerb},
	"mkdir":      {"make folders (images from nothing have no mkdir)", mkdirVerb},
	"ls":         {"list files below folders, with sizes", lsVerb},
	"mv":         {"rename a file or folder", mvVerb},
	"cp":         {"copy a folder", cpVerb},
	"rm":         {"remove files and folders", rmVerb},
	"history":    {"copy a snapshot in a store, as if it had been taken earlier", historyVerb},
	"ripen":      {"make announcements of removals older", ripenVerb},
	"df":         {"print the sizes of the file systems at PATH...", dfVerb},
	"occupy":     {"take a volume's space until so much is left", occupyVerb},
	"s3fault":    {"stand before an S3 server and break connections in chosen ways", s3faultVerb},
	"fetch":      {"download an object of an S3 server, unverified", fetchVerb},
	"plain":      {"save a snapshot to a file or an S3 server, unverified", plainVerb},
	"flip":       {"invert one bit of a file, or of each place that has a text", flipVerb},
	"sleep":      {"do nothing for a while (for a Pod to be looked into)", sleepVerb},
}

var order = []string{"fill", "bulk", "digest", "members", "dial", "writer", "written", "writers", "written-by", "wait", "put", "get", "mkdir", "ls", "df", "mv", "cp", "rm", "history", "ripen", "occupy", "fetch", "plain", "flip", "s3fault", "sleep"}

func main() {
	if len(os.Args) < 2 || verbs[os.Args[1]].setup == nil {
		fmt.Fprintln(os.Stderr, "usage: holdfast-probe VERB [FLAG...]  (VERB -h tells its flags)")
		for _, name := range order {
			fmt.Fprintf(os.Stderr, "  %-8s %s\n", name, verbs[name].about)
		}
		os.Exit(2)
	}
	flags := flag.NewFlagSet(os.Args[1], flag.ExitOnError)
	do := verbs[os.Args[1]].setup(flags)
	flags.Parse(os.Args[2:])
	// A Pod that is deleted says what it has got so far.
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	result, err := do(ctx)
	if result != nil {
		b, _ := json.Marshal(result) // structs of strings and numbers: it cannot fail
		fmt.Println(string(b))
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "holdfast-probe %s: %v\n", os.Args[1], err)
		os.Exit(1)
	}
}

// progress tells how far a long piece of work is, now and then.
type progress struct {
	what  string
	unit  string
	total float64
	begin time.Time
	last  time.Time
}

func newProgress(what, unit string, total float64) *progress {
	now := time.Now()
	return &progress{what: what, unit: unit, total: total, begin: now, last: now}
}

func (p *progress) at(done float64) {
	now := time.Now()
	if now.Sub(p.last) < 2*time.Second {
		return
	}
	p.last = now
	rate := done / now.Sub(p.begin).Seconds()
	left := "?"
	if rate > 0 {
		left = time.Duration(float64(time.Second) * (p.total - done) / rate).Round(time.Second).String()
	}
	fmt.Fprintf(os.Stderr, "%s: %.0f of %.0f %s (%.0f%%), %.0f %s/s, %s left\n", p.what, done, p.total, p.unit, 100*done/p.total, rate, p.unit, left)
}

// byteSize is a flag for sizes such as 512MiB.
type byteSize int64

func (b *byteSize) String() string { return fmt.Sprint(int64(*b)) }

func (b *byteSize) Set(s string) error {
	units := []struct {
		suffix string
		factor int64
	}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"", 1}}
	for _, u := range units {
		if number, ok := strings.CutSuffix(s, u.suffix); ok {
			n, err := strconv.ParseInt(number, 10, 64)
			if err != nil || n <= 0 || n > 1<<40/u.factor {
				return fmt.Errorf("not a size up to 1 TiB: %q", s)
			}
			*b = byteSize(n * u.factor)
			return nil
		}
	}
	return nil
}
