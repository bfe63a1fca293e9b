package main

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
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
	for _, random := range []int{0, 27, 50, 100} {
		v := mixed(rand.New(rand.NewPCG(1, 0)), 8192, random)
		text := bytes.Repeat([]byte(object), 8192/len(object)+1)
		alike := 0
		for alike < len(v) && v[alike] == text[alike] {
			alike++
		}
		if want := 8192 - 8192*random/100; len(v) != 8192 || alike < want || alike > want+8 {
			t.Errorf("%d percent random: %d bytes, %d of them text", random, len(v), alike)
		}
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

func TestWritesAreRepeatedWhileNobodyTakesThem(t *testing.T) {
	repeatPause = time.Millisecond
	for _, c := range []struct {
		err  error
		want int
	}{
		{rpctypes.ErrTimeout, 3},
		{rpctypes.ErrLeaderChanged, 3},
		{status.Error(codes.Unavailable, "transport is closing"), 3},
		{rpctypes.ErrNoSpace, 1},
		{rpctypes.ErrCompacted, 1},
		{errors.New("of another sort"), 1},
		{context.Canceled, 1},
	} {
		tries := 0
		err := repeat(context.Background(), func() error {
			if tries++; tries == 3 {
				return nil
			}
			return c.err
		})
		if tries != c.want || (c.want == 3) != (err == nil) {
			t.Errorf("%v: %d tries, %v", c.err, tries, err)
		}
	}
}
