// etcd's own robustness suite, pointed at a cluster that somebody else runs and troubles: its traffic, its recorders and
// its validators. Which faults happen meanwhile is not decided here, and neither is what a verdict is worth.
//
//	robustness traffic --folder DIR --endpoints URL,URL   until standard input ends; the database is empty at the start
//	robustness collect --folder DIR NAME=DATA-DIR...      copies members' WALs; also before a fault that takes a volume
//	robustness validate --folder DIR                      DIR/report.json; the verdict is in it, not in the exit code
//	robustness table REPORT.json                          the report as Markdown
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"syscall"

	"go.uber.org/zap"
)

const usage = "usage: robustness traffic|collect|validate --folder DIR ..., or robustness table REPORT.json"

// The checker keeps a copy of all keys for each operation. Garbage is collected early enough that the rest fits.
const mostMemory, usualMemory = 8 << 30, 6 << 30

// Of a folder: what clients recorded, what members persisted, and what the traffic was.
func clientsOf(folder string) string { return filepath.Join(folder, "clients") }
func serversOf(folder string) string { return filepath.Join(folder, "servers") }
func runOf(folder string) string     { return filepath.Join(folder, "run.json") }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "robustness:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("%s", usage)
	}
	flags := flag.NewFlagSet(args[0], flag.ContinueOnError)
	folder := flags.String("folder", "", "what was recorded")
	endpoints := flags.String("endpoints", "", "where clients dial, by commas: each gets clients of its own")
	kind := flags.String("traffic", "etcd", "etcd or kubernetes")
	rate := flags.Int("rate", 100, "operations in a second, at most")
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	// Everything but the report goes to standard error.
	lg, err := zap.NewProduction()
	if err != nil {
		return err
	}
	if args[0] == "table" && flags.NArg() == 1 {
		return writeTable(os.Stdout, flags.Arg(0))
	}
	if *folder == "" {
		return fmt.Errorf("%s", usage)
	}
	switch args[0] {
	case "traffic":
		return recordTraffic(ctx, lg, *folder, *endpoints, *kind, *rate)
	case "collect":
		return collectLogs(*folder, flags.Args())
	case "validate":
		if err := limitMemory(); err != nil {
			return err
		}
		return writeReport(lg, *folder)
	default:
		return fmt.Errorf("%s", usage)
	}
}

// limitMemory lets a search for an order without end break off, and not the machine.
func limitMemory() error {
	debug.SetMemoryLimit(usualMemory)
	return syscall.Setrlimit(syscall.RLIMIT_AS, &syscall.Rlimit{Cur: mostMemory, Max: mostMemory})
}
