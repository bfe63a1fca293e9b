package main

// fetch: an object of an S3 server into a file, as the AWS SDK's downloader does it: ranges of 5 MiB, five at a time,
// nothing compared. What a restore is measured against.

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	fetchRange   = 5 << 20
	fetchWorkers = 5
	fetchRegion  = "us-east-1"
	unsigned     = "UNSIGNED-PAYLOAD"
)

type fetchResult struct {
	Bytes   int64   `json:"bytes"`
	Seconds float64 `json:"seconds"`
}

func fetchVerb(f *flag.FlagSet) func(context.Context) (any, error) {
	object := f.String("object", "", "its URL, path style: http://host:port/bucket/key")
	to := f.String("to", "", "the file, which is written anew")
	return func(ctx context.Context) (any, error) {
		at, err := url.Parse(*object)
		if err != nil || at.Host == "" || *to == "" {
			return nil, fmt.Errorf("wants --object http://host:port/bucket/key and --to FILE")
		}
		begun := time.Now()
		file, err := os.Create(*to)
		if err != nil {
			return nil, err
		}
		defer file.Close()
		total, err := fetchPart(ctx, at, file, 0)
		if err != nil {
			return nil, err
		}
		// Each worker takes the next range; the first one told how many there are.
		var next atomic.Int64
		var group sync.WaitGroup
		failures := make([]error, fetchWorkers)
		for worker := range fetchWorkers {
			group.Go(func() {
				for {
					offset := next.Add(fetchRange)
					if offset >= total || failures[worker] != nil {
						return
					}
					_, failures[worker] = fetchPart(ctx, at, file, offset)
				}
			})
		}
		group.Wait()
		for _, err := range failures {
			if err != nil {
				return nil, err
			}
		}
		return fetchResult{total, time.Since(begun).Seconds()}, file.Sync()
	}
}

// fetchPart writes one range where it belongs and returns the size of the whole.
func fetchPart(ctx context.Context, at *url.URL, file *os.File, offset int64) (int64, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil)
	if err != nil {
		return 0, err
	}
	request.Header.Set("Range", fmt.Sprintf("bytes=%d-%d", offset, offset+fetchRange-1))
	signV4(request, os.Getenv("ACCESS_KEY"), os.Getenv("SECRET_KEY"), time.Now().UTC())
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusPartialContent {
		return 0, fmt.Errorf("%s at %d: %s", at.Path, offset, answer.Status)
	}
	_, size, _ := strings.Cut(answer.Header.Get("Content-Range"), "/")
	total, err := strconv.ParseInt(size, 10, 64)
	if err != nil {
		return 0, err
	}
	wanted := min(fetchRange, total-offset)
	written, err := io.Copy(io.NewOffsetWriter(file, offset), answer.Body)
	if err == nil && written != wanted {
		err = fmt.Errorf("%s at %d: %d bytes instead of %d", at.Path, offset, written, wanted)
	}
	return total, err
}

// signV4 signs a request, its body left out (AWS: "Signature Version 4 signing process").
func signV4(request *http.Request, access, secret string, now time.Time) {
	stamp, day := now.Format("20060102T150405Z"), now.Format("20060102")
	request.Header.Set("X-Amz-Date", stamp)
	request.Header.Set("X-Amz-Content-Sha256", unsigned)
	const signed = "host;x-amz-content-sha256;x-amz-date"
	canonical := strings.Join([]string{
		request.Method, request.URL.EscapedPath(), request.URL.Query().Encode(),
		"host:" + request.URL.Host, "x-amz-content-sha256:" + unsigned, "x-amz-date:" + stamp, "",
		signed, unsigned,
	}, "\n")
	scope := day + "/" + fetchRegion + "/s3/aws4_request"
	hash := sha256.Sum256([]byte(canonical))
	key := []byte("AWS4" + secret)
	for _, part := range []string{day, fetchRegion, "s3", "aws4_request"} {
		key = mac(key, part)
	}
	signature := mac(key, strings.Join([]string{"AWS4-HMAC-SHA256", stamp, scope, hex.EncodeToString(hash[:])}, "\n"))
	request.Header.Set("Authorization", fmt.Sprintf("AWS4-HMAC-SHA256 Credential=%s/%s, SignedHeaders=%s, Signature=%x",
		access, scope, signed, signature))
}

func mac(key []byte, text string) []byte {
	sum := hmac.New(sha256.New, key)
	sum.Write([]byte(text))
	return sum.Sum(nil)
}
