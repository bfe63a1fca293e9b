package main

// writers and written-by: many clients at a time, each with a connection of its own
// and numbered keys of its own. Whether what was acknowledged is there later is
// asked for each of them.

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

type writersResult struct {
	Acked     []int64 `json:"acked"` // by writer: every number from 1 to this one was acknowledged
	Total     int64   `json:"total"`
	Failed    int     `json:"failed"` // attempts without an answer; each was repeated
	Logins    int     `json:"logins"` // times that a client read its password again and etcd took it
	LongestMs float64 `json:"longestGapMs"`
	LastError string  `json:"lastError,omitempty"`
}

func writersPrefix(prefix string, writer int) string { return fmt.Sprintf("%s%03d/", prefix, writer) }

func writersVerb(f *flag.FlagSet) func(context.Context) (any, error) {
	var t target
	t.flags(f)
	prefix := f.String("prefix", "writers/", "what the keys begin with")
	writers := f.Int("writers", 100, "clients")
	duration := f.Duration("duration", 30*time.Second, "for how long")
	rate := f.Int("rate", 2, "writes a second of each client, at most")
	stop := f.String("until-file", "", "end before the duration is over, once this file exists")
	return func(ctx context.Context) (any, error) {
		ctx, cancel := context.WithTimeout(ctx, *duration)
		defer cancel()
		if *stop != "" {
			go func() {
				for ctx.Err() == nil {
					if _, err := os.Stat(*stop); err == nil {
						cancel()
					}
					time.Sleep(200 * time.Millisecond)
				}
			}()
		}
		all := make([]writerResult, *writers)
		failed := make([]error, *writers)
		var group sync.WaitGroup
		for n := range *writers {
			group.Go(func() {
				all[n], _, failed[n] = writeNumbers(ctx, t, writersPrefix(*prefix, n), *rate, 2*time.Second, func() {})
			})
		}
		group.Wait()
		r := writersResult{}
		for n, one := range all {
			if failed[n] != nil {
				return nil, failed[n]
			}
			r.Acked = append(r.Acked, one.LastAcked)
			r.Total += one.LastAcked
			r.Failed += one.Failed
			r.Logins += one.Logins
			r.LongestMs = max(r.LongestMs, one.LongestMs)
			if one.LastError != "" {
				r.LastError = one.LastError
			}
		}
		return r, nil
	}
}

func writtenByVerb(f *flag.FlagSet) func(context.Context) (any, error) {
	var t target
	t.flags(f)
	prefix := f.String("prefix", "writers/", "what the keys begin with")
	acked := f.String("acked", "", "the last number of each writer that was acknowledged, with commas between them")
	return func(ctx context.Context) (any, error) {
		c, err := t.client()
		if err != nil {
			return nil, err
		}
		defer c.Close()
		r := writtenResult{}
		for n, text := range strings.Split(*acked, ",") {
			last, err := strconv.ParseInt(text, 10, 64)
			if err != nil {
				return nil, err
			}
			one, err := findWritten(ctx, c, writersPrefix(*prefix, n), last)
			if err != nil {
				return nil, err
			}
			r.Found += one.Found
			r.Missing += one.Missing
			r.Revision = one.Revision
			if r.FirstMissing == "" {
				r.FirstMissing = one.FirstMissing
			}
		}
		if r.Missing > 0 {
			return r, fmt.Errorf("%d acknowledged writes are not there, the first is %s", r.Missing, r.FirstMissing)
		}
		return r, nil
	}
}
