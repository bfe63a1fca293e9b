package main

// s3fault: stands between a client and an S3 server and breaks the connection in
// chosen ways. Requests and answers pass unchanged, the Host header too, for
// signatures cover it. It decides what a fault does to a request; when there is
// one is said by whoever asks the control port.

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// The modes, as the control port takes them. Those with ":" have a number.
const (
	faultOK   = "ok"    // everything passes
	faultDown = "down"  // connections are closed, those that are open too
	fault503  = "503"   // each request is read and answered as S3 does when it is overloaded
	faultSlow = "slow:" // so many bytes of body a second, in each direction of each request
	faultCut  = "cut:"  // the connection is closed after so many bytes of an answer's body; with 0, before the answer
	faultHang = "hang"  // nothing is read, nothing is answered, connections stay open
)

const faultModes = "ok, down, 503, slow:BYTES (a second), cut:BYTES, hang"

type faultMode struct {
	kind   string
	number int64
}

func parseFaultMode(s string) (faultMode, error) {
	switch s {
	case faultOK, faultDown, fault503, faultHang:
		return faultMode{kind: s}, nil
	}
	for kind, least := range map[string]int64{faultSlow: 1, faultCut: 0} {
		if number, ok := strings.CutPrefix(s, kind); ok {
			if n, err := strconv.ParseInt(number, 10, 64); err == nil && n >= least {
				return faultMode{kind, n}, nil
			}
		}
	}
	return faultMode{}, fmt.Errorf("no mode %q: there are %s", s, faultModes)
}

func (m faultMode) String() string {
	if strings.HasSuffix(m.kind, ":") {
		return m.kind + strconv.FormatInt(m.number, 10)
	}
	return m.kind
}

// faultState is what the control port answers. The counts begin anew with each
// mode, so a test sees whether its fault has met anybody.
type faultState struct {
	Mode     string `json:"mode"`
	Requests int64  `json:"requests"` // that came in this mode
	Broken   int64  `json:"broken"`   // requests and answers that it closed, cut or refused
	Up       int64  `json:"up"`       // bytes of requests' bodies
	Down     int64  `json:"down"`     // bytes of answers' bodies
}

func s3faultVerb(f *flag.FlagSet) func(context.Context) (any, error) {
	listen := f.String("listen", ":7070", "where clients connect")
	control := f.String("control", ":7071", "where /_fault?mode=MODE sets the mode, and /_fault tells it; modes: "+faultModes)
	upstream := f.String("upstream", "", "the S3 server, such as http://s3:7070")
	mode := f.String("mode", faultOK, "the mode to begin with")
	return func(ctx context.Context) (any, error) {
		to, err := url.Parse(*upstream)
		if err != nil || to.Scheme != "http" && to.Scheme != "https" || to.Host == "" || strings.Trim(to.Path, "/") != "" {
			return nil, fmt.Errorf("--upstream has to be http://HOST:PORT or https://HOST:PORT, not %q", *upstream)
		}
		first, err := parseFaultMode(*mode)
		if err != nil {
			return nil, err
		}
		p := newFaultProxy(to, first)
		for address, serve := range map[string]func(net.Listener) error{
			*listen:  p.serve,
			*control: (&http.Server{Handler: p.control()}).Serve,
		} {
			l, err := net.Listen("tcp", address)
			if err != nil {
				return nil, err
			}
			defer l.Close()
			go serve(l)
		}
		<-ctx.Done()
		last := p.state()
		p.close()
		return last, nil
	}
}

type faultProxy struct {
	server *http.Server

	guard       sync.Mutex
	mode        faultMode
	changed     chan struct{} // closed when the mode changes
	connections map[net.Conn]bool

	requests, broken, up, down atomic.Int64
}

// errFault ends a request as a fault: the connection is closed without an answer,
// or in the middle of one.
var errFault = errors.New("broken on purpose")

func newFaultProxy(to *url.URL, mode faultMode) *faultProxy {
	p := &faultProxy{mode: mode, changed: make(chan struct{}), connections: map[net.Conn]bool{}}
	forward := &httputil.ReverseProxy{
		// What the proxy would tidy up is put back: it may be signed.
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host, r.Out.Host = to.Scheme, to.Host, r.In.Host
			r.Out.URL.RawQuery = r.In.URL.RawQuery
			for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"} {
				if values, ok := r.In.Header[name]; ok {
					r.Out.Header[name] = values
				}
			}
		},
		Transport: &http.Transport{
			DisableCompression: true, // it would ask for gzip, and unpack it
			// A kept connection that the server closes just then would be a fault that nobody asked for.
			DisableKeepAlives:     true,
			ExpectContinueTimeout: 5 * time.Second,
		},
		FlushInterval: -1, // a cut comes after what was let through, not after what was buffered
		ModifyResponse: func(r *http.Response) error {
			r.Body = &faultyBody{ReadCloser: r.Body, proxy: p, ctx: r.Request.Context(), passed: &p.down, answer: true}
			return nil
		},
		// The server's own failures look to the client like what they are.
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
		ErrorLog:     log.New(io.Discard, "", 0), // faults are counted; a line for each helps nobody
	}
	p.server = &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { p.handle(w, r, forward) }),
		ConnState: func(c net.Conn, s http.ConnState) {
			p.guard.Lock()
			defer p.guard.Unlock()
			switch s {
			case http.StateNew:
				p.connections[c] = true
				if p.mode.kind == faultDown {
					c.Close()
				}
			case http.StateClosed, http.StateHijacked:
				delete(p.connections, c)
			}
		},
	}
	return p
}

func (p *faultProxy) serve(l net.Listener) error { return p.server.Serve(l) }

// close wakes what hangs.
func (p *faultProxy) close() {
	p.set(faultMode{kind: faultDown})
	p.server.Close()
}

func (p *faultProxy) now() (faultMode, chan struct{}) {
	p.guard.Lock()
	defer p.guard.Unlock()
	return p.mode, p.changed
}

func (p *faultProxy) set(m faultMode) {
	p.guard.Lock()
	defer p.guard.Unlock()
	p.mode = m
	for _, count := range []*atomic.Int64{&p.requests, &p.broken, &p.up, &p.down} {
		count.Store(0)
	}
	close(p.changed)
	p.changed = make(chan struct{})
	if m.kind == faultDown {
		for c := range p.connections {
			c.Close()
		}
	}
}

func (p *faultProxy) state() faultState {
	m, _ := p.now()
	return faultState{m.String(), p.requests.Load(), p.broken.Load(), p.up.Load(), p.down.Load()}
}

func (p *faultProxy) control() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/_fault", func(w http.ResponseWriter, r *http.Request) {
		if asked := r.URL.Query(); asked.Has("mode") {
			m, err := parseFaultMode(asked.Get("mode"))
			if err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			p.set(m)
		}
		w.Header().Set("Content-Type", "application/json")
		json.NewEncoder(w).Encode(p.state())
	})
	return mux
}

// As S3 answers: clients look at the code in the body too.
const fault503Body = `<?xml version="1.0" encoding="UTF-8"?>` + "\n" +
	`<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>`

func (p *faultProxy) handle(w http.ResponseWriter, r *http.Request, forward http.Handler) {
	p.requests.Add(1)
	for {
		m, changed := p.now()
		switch m.kind {
		case faultDown:
			p.broken.Add(1)
			panic(http.ErrAbortHandler)
		case fault503:
			// The body is read first: a client that is still sending may never see an early answer.
			io.Copy(io.Discard, r.Body)
			p.broken.Add(1)
			w.Header().Set("Content-Type", "application/xml")
			w.WriteHeader(http.StatusServiceUnavailable)
			if r.Method != http.MethodHead {
				io.WriteString(w, fault503Body)
			}
			return
		case faultHang:
			select {
			case <-changed:
				continue
			case <-r.Context().Done():
				panic(http.ErrAbortHandler)
			}
		}
		if r.ContentLength != 0 { // an empty body has to stay known as empty
			r.Body = &faultyBody{ReadCloser: r.Body, proxy: p, ctx: r.Context(), passed: &p.up}
		}
		// Go's server would add these where the upstream has none.
		w.Header()["Content-Type"], w.Header()["Date"] = nil, nil
		forward.ServeHTTP(w, r)
		return
	}
}

// faultyBody does to a body that is on its way what the mode of the moment says.
type faultyBody struct {
	io.ReadCloser
	proxy  *faultProxy
	ctx    context.Context
	passed *atomic.Int64 // the proxy's count
	own    int64         // of this body
	answer bool
}

// A slow body goes in so many pieces a second: large enough to be cheap, small
// enough to be even.
const faultPieces = 20

func (b *faultyBody) Read(into []byte) (int, error) {
	for {
		m, changed := b.proxy.now()
		switch {
		case m.kind == faultDown:
			return 0, b.breakOff()
		case m.kind == faultHang:
			select {
			case <-changed:
				continue
			case <-b.ctx.Done():
				return 0, b.ctx.Err()
			}
		case m.kind == faultSlow:
			return b.readSlowly(into, m.number, changed)
		case m.kind == faultCut && b.answer:
			if b.own >= m.number {
				// A body that is just as long is whole.
				if n, err := b.ReadCloser.Read(into[:min(1, len(into))]); n == 0 && err != nil {
					return 0, err
				}
				return 0, b.breakOff()
			}
			into = into[:min(int64(len(into)), m.number-b.own)]
		}
		return b.read(into)
	}
}

func (b *faultyBody) read(into []byte) (int, error) {
	n, err := b.ReadCloser.Read(into)
	b.own += int64(n)
	b.passed.Add(int64(n))
	return n, err
}

func (b *faultyBody) readSlowly(into []byte, rate int64, changed chan struct{}) (int, error) {
	n, err := b.read(into[:min(int64(len(into)), max(1, rate/faultPieces))])
	// First the wait, then the piece: so the first one is not for free.
	select {
	case <-time.After(time.Duration(float64(time.Second) * float64(n) / float64(rate))):
	case <-changed:
	case <-b.ctx.Done():
	}
	return n, err
}

func (b *faultyBody) breakOff() error {
	b.proxy.broken.Add(1)
	return errFault
}
