package main

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"
)

func TestSizeFlags(t *testing.T) {
	var b byteSize
	for text, want := range map[string]int64{"1GiB": 1 << 30, "5MiB": 5 << 20, "7KiB": 7 << 10, "12": 12} {
		if err := b.Set(text); err != nil || int64(b) != want {
			t.Errorf("%s: %d, %v", text, b, err)
		}
	}
	for _, bad := range []string{"", "1.5GiB", "-1", "0", "1GB", "99999999GiB"} {
		if b.Set(bad) == nil {
			t.Errorf("%q was taken for a size", bad)
		}
	}
	var s sizes
	if err := s.Set("64..1024"); err != nil || s != (sizes{64, 1024}) {
		t.Errorf("%v, %v", s, err)
	}
	if err := s.Set("8192"); err != nil || s != (sizes{8192, 8192}) {
		t.Errorf("%v, %v", s, err)
	}
	for _, bad := range []string{"x", "5..2", "-1", "1..9999999"} {
		if s.Set(bad) == nil {
			t.Errorf("%q was taken for sizes", bad)
		}
	}
}

func TestValuesFollowTheSeed(t *testing.T) {
	of := func(seed uint64, size int) []byte { return value(rand.New(rand.NewPCG(seed, 0)), size) }
	for _, size := range []int{0, 1, 64, 1000, 8192} {
		if a := of(1, size); len(a) != size || !bytes.Equal(a, of(1, size)) {
			t.Errorf("%d bytes: %d, or not the same twice", size, len(a))
		}
	}
	if bytes.Equal(of(1, 64), of(2, 64)) {
		t.Error("two seeds gave one value")
	}
}

func TestDialIsBoundedAndCounts(t *testing.T) {
	var calls atomic.Int64
	r := dialAll(context.Background(), 200, 100*time.Millisecond, func() error {
		if calls.Add(1)%2 == 0 {
			return errors.New("refused")
		}
		return nil
	})
	if r.Attempts != 20 || r.Failed != 10 || calls.Load() != 20 || r.Errors["Unknown: refused"] != 10 {
		t.Errorf("%+v after %d calls", r, calls.Load())
	}
}
