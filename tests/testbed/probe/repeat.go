package main

// repeat: a write is sent again when nobody could take it, for an election or a
// machine that stood still is not what the tests are about.

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

var (
	repeatFor   = 3 * time.Minute
	repeatPause = time.Second
)

// repeat gives the error of the last attempt. A write that is repeated may have
// been done twice: the content is the same, revisions and versions are not.
func repeat(ctx context.Context, write func() error) error {
	begin := time.Now()
	for {
		err := write()
		if err == nil || !mayPass(err) || time.Since(begin) > repeatFor {
			return err
		}
		fmt.Fprintf(os.Stderr, "written again: %v\n", err)
		select {
		case <-time.After(repeatPause):
		case <-ctx.Done():
			return err
		}
	}
}

// mayPass tells whether the same request may be answered otherwise a moment later.
func mayPass(err error) bool {
	code := status.Code(err)
	var said rpctypes.EtcdError
	if errors.As(err, &said) {
		code = said.Code()
	}
	return code == codes.Unavailable || code == codes.DeadlineExceeded
}
