package main

// plain: a snapshot as most tools take one: the stream of etcd's own client, hashed on its way, as it is into a file or an
// object; parts of 5 MiB, five at a time, as the AWS SDK sends them, and nothing compared. What a save is measured against.

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/xml"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	plainPart    = 5 << 20
	plainWorkers = 5
)

type plainResult struct {
	Bytes   int64   `json:"bytes"`
	SHA256  string  `json:"sha256"`
	Seconds float64 `json:"seconds"`
}

func plainVerb(f *flag.FlagSet) func(context.Context) (any, error) {
	var t target
	t.flags(f)
	to := f.String("to", "", "the file, which gets its name when it is whole")
	object := f.String("object", "", "or the object's URL, path style: http://host:port/bucket/key")
	timeout := f.Duration("timeout", 10*time.Minute, "when to give up")
	return func(ctx context.Context) (any, error) {
		if (*to == "") == (*object == "") {
			return nil, fmt.Errorf("wants --to FILE or --object http://host:port/bucket/key")
		}
		return t.with(ctx, *timeout, func(ctx context.Context, c *clientv3.Client) (any, error) {
			begun := time.Now()
			stream, err := c.Snapshot(ctx)
			if err != nil {
				return nil, err
			}
			defer stream.Close()
			hash := sha256.New()
			count := &plainCount{Reader: io.TeeReader(stream, hash)}
			if *to != "" {
				err = plainFile(count, *to)
			} else {
				err = plainObject(ctx, count, *object)
			}
			if err != nil {
				return nil, err
			}
			return plainResult{count.bytes, hex.EncodeToString(hash.Sum(nil)), time.Since(begun).Seconds()}, nil
		})
	}
}

type plainCount struct {
	io.Reader
	bytes int64
}

func (c *plainCount) Read(into []byte) (int, error) {
	n, err := c.Reader.Read(into)
	c.bytes += int64(n)
	return n, err
}

func plainFile(from io.Reader, to string) error {
	file, err := os.CreateTemp(filepath.Dir(to), ".plain-*")
	if err != nil {
		return err
	}
	defer os.Remove(file.Name())
	defer file.Close()
	if _, err := io.Copy(file, from); err != nil {
		return err
	}
	if err := file.Sync(); err != nil {
		return err
	}
	return os.Rename(file.Name(), to)
}

type plainUpload struct {
	Parts []plainDone `xml:"Part"`
}

type plainDone struct {
	PartNumber int
	ETag       string
}

func plainObject(ctx context.Context, from io.Reader, object string) error {
	at, err := url.Parse(object)
	if err != nil || at.Host == "" {
		return fmt.Errorf("--object %s is not http://host:port/bucket/key", object)
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var begun struct{ UploadId string }
	answer, err := plainAsk(ctx, at, http.MethodPost, url.Values{"uploads": {""}}, nil)
	if err != nil {
		return err
	}
	if err := xml.Unmarshal(answer.body, &begun); err != nil {
		return err
	}
	type part struct {
		number int
		bytes  []byte
	}
	parts := make(chan part)
	var group sync.WaitGroup
	var lock sync.Mutex
	var done []plainDone
	var failure error
	for range plainWorkers {
		group.Go(func() {
			for p := range parts {
				query := url.Values{"partNumber": {fmt.Sprint(p.number)}, "uploadId": {begun.UploadId}}
				answer, err := plainAsk(ctx, at, http.MethodPut, query, p.bytes)
				lock.Lock()
				if err != nil && failure == nil {
					failure = err
					stop()
				}
				if err == nil {
					done = append(done, plainDone{p.number, answer.etag})
				}
				lock.Unlock()
			}
		})
	}
	var read error
	for number := 1; read == nil && ctx.Err() == nil; number++ {
		piece := make([]byte, plainPart)
		n, err := io.ReadFull(from, piece)
		if n > 0 {
			parts <- part{number, piece[:n]}
		}
		read = err
	}
	close(parts)
	group.Wait()
	if failure != nil {
		return failure
	}
	if read != io.EOF && read != io.ErrUnexpectedEOF {
		return fmt.Errorf("reading the stream: %w", read)
	}
	whole := plainUpload{make([]plainDone, len(done))}
	for _, p := range done {
		whole.Parts[p.PartNumber-1] = p
	}
	body, err := xml.Marshal(struct {
		XMLName xml.Name `xml:"CompleteMultipartUpload"`
		plainUpload
	}{plainUpload: whole})
	if err != nil {
		return err
	}
	_, err = plainAsk(ctx, at, http.MethodPost, url.Values{"uploadId": {begun.UploadId}}, body)
	return err
}

type plainAnswer struct {
	etag string
	body []byte
}

func plainAsk(ctx context.Context, at *url.URL, method string, query url.Values, body []byte) (plainAnswer, error) {
	to := *at
	to.RawQuery = query.Encode()
	request, err := http.NewRequestWithContext(ctx, method, to.String(), bytes.NewReader(body))
	if err != nil {
		return plainAnswer{}, err
	}
	signV4(request, os.Getenv("ACCESS_KEY"), os.Getenv("SECRET_KEY"), time.Now().UTC())
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return plainAnswer{}, err
	}
	defer answer.Body.Close()
	said, err := io.ReadAll(io.LimitReader(answer.Body, 1<<20))
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s %s: %s", method, to.String(), answer.Status)
	}
	return plainAnswer{answer.Header.Get("ETag"), said}, err
}
