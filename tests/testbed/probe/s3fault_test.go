package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"
)

// faultBench is a proxy before a server of the test's own.
type faultBench struct {
	t       *testing.T
	proxy   *faultProxy
	address string
	control *httptest.Server
}

func newFaultBench(t *testing.T, upstream http.HandlerFunc) *faultBench {
	server := httptest.NewServer(upstream)
	t.Cleanup(server.Close)
	to, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	p := newFaultProxy(to, faultMode{kind: faultOK})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go p.serve(l)
	t.Cleanup(p.close) // before the server, which waits for its requests
	control := httptest.NewServer(p.control())
	t.Cleanup(control.Close)
	return &faultBench{t, p, l.Addr().String(), control}
}

// ask goes through the control port, as tests in a cluster do.
func (b *faultBench) ask(query string) (faultState, int) {
	b.t.Helper()
	r, err := http.Get(b.control.URL + "/_fault" + query)
	if err != nil {
		b.t.Fatal(err)
	}
	defer r.Body.Close()
	var s faultState
	if r.StatusCode == http.StatusOK {
		if err := json.NewDecoder(r.Body).Decode(&s); err != nil {
			b.t.Fatal(err)
		}
	}
	return s, r.StatusCode
}

func (b *faultBench) mode(mode string) {
	b.t.Helper()
	if s, code := b.ask("?mode=" + mode); code != http.StatusOK || s != (faultState{Mode: mode}) {
		b.t.Fatalf("mode %s: %d, %+v", mode, code, s)
	}
}

func (b *faultBench) url() string { return "http://" + b.address + "/bucket/key" }

// request gives the body as far as it came.
func (b *faultBench) request(method string, body []byte) (int, []byte, error) {
	r, err := http.NewRequest(method, b.url(), bytes.NewReader(body))
	if err != nil {
		b.t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 30 * time.Second}
	answer, err := client.Do(r)
	if err != nil {
		return 0, nil, err
	}
	defer answer.Body.Close()
	got, err := io.ReadAll(answer.Body)
	return answer.StatusCode, got, err
}

// echo answers with the request's body.
func echo(w http.ResponseWriter, r *http.Request) {
	b, err := io.ReadAll(r.Body)
	if err == nil {
		w.Header().Set("Content-Length", fmt.Sprint(len(b)))
		w.Write(b)
	}
}

func TestFaultModes(t *testing.T) {
	for _, good := range []string{"ok", "down", "503", "hang", "slow:1", "slow:1048576", "cut:0", "cut:77"} {
		if m, err := parseFaultMode(good); err != nil || m.String() != good {
			t.Errorf("%s: %v, %v", good, m, err)
		}
	}
	for _, bad := range []string{"", "OK", "500", "slow", "slow:", "slow:0", "slow:-1", "cut:x", "cut:-1", "slow:", "ok:1"} {
		if m, err := parseFaultMode(bad); err == nil {
			t.Errorf("%q was taken for %v", bad, m)
		}
	}
}

// A signature covers the method, the path and query as they are written, and headers, Host among them.
func TestRequestsAndAnswersPassUnchanged(t *testing.T) {
	const uri, host = "/bucket/a%2Fb/c%20d/e+f//g?list-type=2&prefix=a%2Fb&marker=x;y&uploads&bad=%zz", "s3.some-namespace.svc:7070"
	seen := make(chan *http.Request, 1)
	bodies := make(chan []byte, 1)
	b := newFaultBench(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		seen <- r
		bodies <- body
		h := w.Header()
		h["Content-Type"], h["Date"] = nil, nil
		h.Set("Content-Encoding", "gzip")
		h.Set("ETag", `"0123"`)
		w.WriteHeader(http.StatusPartialContent)
		w.Write([]byte{0x1f, 0x8b, 0, 1, 2})
	})
	for _, c := range []struct{ method, framing, body string }{
		{"PUT", "Content-Length: 5\r\n", "hello"},
		{"PUT", "Content-Length: 0\r\n", ""},
		{"GET", "", ""},
		{"PUT", "Transfer-Encoding: chunked\r\n", "5\r\nhello\r\n0\r\n\r\n"},
	} {
		client, err := net.Dial("tcp", b.address)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(client, "%s %s HTTP/1.1\r\nHost: %s\r\nAuthorization: AWS4-HMAC-SHA256 x\r\nX-Forwarded-For: 1.2.3.4\r\nX-Amz-Date: 1\r\n%s\r\n%s",
			c.method, uri, host, c.framing, c.body)
		answer, err := http.ReadResponse(bufio.NewReader(client), nil)
		if err != nil {
			t.Fatalf("%q: %v", c.framing, err)
		}
		got, err := io.ReadAll(answer.Body)
		client.Close()
		r, body := <-seen, <-bodies
		if r.RequestURI != uri || r.Host != host || r.Method != c.method {
			t.Errorf("%q: %s %s of %s", c.framing, r.Method, r.RequestURI, r.Host)
		}
		headers := map[string]string{"Authorization": "AWS4-HMAC-SHA256 x", "X-Forwarded-For": "1.2.3.4", "X-Amz-Date": "1"}
		if strings.HasPrefix(c.framing, "Content-Length") {
			headers["Content-Length"] = strings.TrimSpace(strings.TrimPrefix(c.framing, "Content-Length:"))
		}
		for name, want := range headers {
			if r.Header.Get(name) != want {
				t.Errorf("%q: %s is %q", c.framing, name, r.Header.Get(name))
			}
			r.Header.Del(name)
		}
		if r.Header.Del("Connection"); len(r.Header) != 0 { // that one is between two neighbours only
			t.Errorf("%q: headers were added: %v", c.framing, r.Header)
		}
		if want := strings.Contains(c.body, "hello"); want != (string(body) == "hello") || !want && len(body) > 0 {
			t.Errorf("%q: body %q", c.framing, body)
		}
		if answer.StatusCode != http.StatusPartialContent || answer.Header.Get("Content-Encoding") != "gzip" || answer.Header.Get("ETag") != `"0123"` ||
			!bytes.Equal(got, []byte{0x1f, 0x8b, 0, 1, 2}) || err != nil {
			t.Errorf("%q: answer %d %v %x, %v", c.framing, answer.StatusCode, answer.Header, got, err)
		}
		for _, name := range []string{"Content-Type", "Date", "Via"} {
			if answer.Header.Get(name) != "" {
				t.Errorf("%q: the answer got a %s", c.framing, name)
			}
		}
	}
}

// Clients ask first whether a large body is welcome.
func TestExpectationsPass(t *testing.T) {
	b := newFaultBench(t, echo)
	client := &http.Client{Transport: &http.Transport{ExpectContinueTimeout: 10 * time.Second}}
	var fastest time.Duration
	// Who is not answered sends after 5 s, every time; a machine that stands still does so now and then.
	for try := range 3 {
		r, _ := http.NewRequest(http.MethodPut, b.url(), strings.NewReader("hello"))
		r.Header.Set("Expect", "100-continue")
		begin := time.Now()
		answer, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(answer.Body)
		answer.Body.Close()
		if string(got) != "hello" || err != nil {
			t.Errorf("%q, %v", got, err)
		}
		if took := time.Since(begin); try == 0 || took < fastest {
			fastest = took
		}
		if fastest <= 4*time.Second {
			return
		}
	}
	t.Errorf("no answer faster than %s", fastest)
}

func TestFault503ReadsAndRefuses(t *testing.T) {
	asked := false
	b := newFaultBench(t, func(http.ResponseWriter, *http.Request) { asked = true })
	b.mode("503")
	code, body, err := b.request(http.MethodPut, make([]byte, 8<<20))
	if err != nil || code != http.StatusServiceUnavailable || !strings.Contains(string(body), "<Code>SlowDown</Code>") || asked {
		t.Errorf("%d %q, %v; upstream asked: %v", code, body, err, asked)
	}
	if code, body, err := b.request(http.MethodHead, nil); err != nil || code != http.StatusServiceUnavailable || len(body) > 0 {
		t.Errorf("HEAD: %d %q, %v", code, body, err)
	}
	if s, _ := b.ask(""); s.Requests != 2 || s.Broken != 2 {
		t.Errorf("%+v", s)
	}
}

func TestFaultDownClosesOldAndNew(t *testing.T) {
	b := newFaultBench(t, func(w http.ResponseWriter, r *http.Request) {
		w.Write([]byte("begin"))
		w.(http.Flusher).Flush()
		<-r.Context().Done() // until the proxy goes away
	})
	answer, err := http.Get(b.url())
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if _, err := io.ReadFull(answer.Body, make([]byte, 5)); err != nil {
		t.Fatal(err)
	}
	idle, err := net.Dial("tcp", b.address)
	if err != nil {
		t.Fatal(err)
	}
	defer idle.Close()
	// It has to be known to the proxy before the mode changes, which accepting takes care of in time.
	for end := time.Now().Add(5 * time.Second); ; time.Sleep(time.Millisecond) {
		b.proxy.guard.Lock()
		n := len(b.proxy.connections)
		b.proxy.guard.Unlock()
		if n == 2 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("%d connections", n)
		}
	}
	b.mode("down")
	if rest, err := io.ReadAll(answer.Body); err == nil {
		t.Errorf("an answer on its way ended well, with %q", rest)
	}
	idle.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := idle.Read(make([]byte, 1)); err == nil || errors.Is(err, errTimeout(err)) {
		t.Errorf("a waiting connection stayed open: %v", err)
	}
	if code, _, err := b.request(http.MethodGet, nil); err == nil {
		t.Errorf("a new request was answered: %d", code)
	}
}

// errTimeout gives the error itself if it says that time ran out.
func errTimeout(err error) error {
	var n net.Error
	if errors.As(err, &n) && n.Timeout() {
		return err
	}
	return nil
}

func TestFaultsEndWithTheMode(t *testing.T) {
	b := newFaultBench(t, echo)
	for _, mode := range []string{"down", "503", "cut:1", "hang"} {
		b.mode(mode)
		b.mode("ok")
		if code, body, err := b.request(http.MethodPut, []byte("hello")); err != nil || code != http.StatusOK || string(body) != "hello" {
			t.Errorf("after %s: %d %q, %v", mode, code, body, err)
		}
	}
	if s, _ := b.ask(""); s != (faultState{Mode: "ok", Requests: 1, Up: 5, Down: 5}) {
		t.Errorf("%+v", s)
	}
}

func TestFaultCutEndsAnAnswerInItsMiddle(t *testing.T) {
	b := newFaultBench(t, echo)
	whole := make([]byte, 200<<10)
	for i := range whole {
		whole[i] = byte(i)
	}
	b.mode("cut:0")
	if code, body, err := b.request(http.MethodPut, whole); err == nil {
		t.Errorf("cut at 0: %d, %d bytes", code, len(body))
	}
	for _, cut := range []int{1, 1000, 32 << 10, 100_001} {
		b.mode(fmt.Sprintf("cut:%d", cut))
		code, body, err := b.request(http.MethodPut, whole)
		if code != http.StatusOK || err == nil || !bytes.Equal(body, whole[:cut]) {
			t.Errorf("cut at %d: %d, %d bytes, %v", cut, code, len(body), err)
		}
		if s, _ := b.ask(""); s.Broken != 1 || s.Up != int64(len(whole)) || s.Down != int64(cut) {
			t.Errorf("cut at %d: %+v", cut, s)
		}
	}
	for _, cut := range []int{len(whole), len(whole) + 1} {
		b.mode(fmt.Sprintf("cut:%d", cut))
		if code, body, err := b.request(http.MethodPut, whole); code != http.StatusOK || err != nil || !bytes.Equal(body, whole) {
			t.Errorf("cut at %d: %d, %d bytes, %v", cut, code, len(body), err)
		}
	}
}

func TestFaultSlowHoldsTheRateBothWays(t *testing.T) {
	b := newFaultBench(t, echo)
	whole := make([]byte, 40<<10)
	b.mode("slow:102400")
	begin := time.Now()
	code, body, err := b.request(http.MethodPut, whole) // 0.4 s there, 0.4 s back
	took := time.Since(begin)
	if code != http.StatusOK || err != nil || len(body) != len(whole) || took < 750*time.Millisecond {
		t.Errorf("%d, %d bytes after %s, %v", code, len(body), took, err)
	}
	// A change of mode does not wait for the end of what is slow.
	b.mode("slow:1")
	done := make(chan error, 1)
	go func() {
		_, got, err := b.request(http.MethodPut, whole)
		if err == nil && len(got) != len(whole) {
			err = io.ErrUnexpectedEOF
		}
		done <- err
	}()
	b.until(func(s faultState) bool { return s.Requests == 1 })
	b.mode("ok")
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func (b *faultBench) until(good func(faultState) bool) {
	b.t.Helper()
	for end := time.Now().Add(10 * time.Second); !good(b.proxy.state()); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			b.t.Fatalf("still %+v", b.proxy.state())
		}
	}
}

func TestFaultHangHoldsWhatComesAndWhatIsOnItsWay(t *testing.T) {
	more := make(chan bool)
	b := newFaultBench(t, func(w http.ResponseWriter, r *http.Request) {
		w.Write([]byte("begin"))
		w.(http.Flusher).Flush()
		<-more
		w.Write([]byte("end"))
	})
	begun, err := http.Get(b.url())
	if err != nil {
		t.Fatal(err)
	}
	defer begun.Body.Close()
	if _, err := io.ReadFull(begun.Body, make([]byte, 5)); err != nil {
		t.Fatal(err)
	}
	b.mode("hang")
	answers := make(chan string, 2)
	go func() {
		rest, err := io.ReadAll(begun.Body)
		answers <- fmt.Sprintf("%s %v", rest, err)
	}()
	go func() {
		_, body, err := b.request(http.MethodGet, nil)
		answers <- fmt.Sprintf("%s %v", body, err)
	}()
	b.until(func(s faultState) bool { return s.Requests == 1 })
	close(more)
	select {
	case a := <-answers:
		// What had been read before the mode changed may still come through.
		if a != "end <nil>" {
			t.Fatalf("%q while everything hangs", a)
		}
		answers <- a
	case <-time.After(200 * time.Millisecond):
	}
	b.mode("ok")
	got := []string{<-answers, <-answers}
	slices.Sort(got)
	if !slices.Equal(got, []string{"beginend <nil>", "end <nil>"}) {
		t.Errorf("%q", got)
	}
}

func TestControlRefusesWhatItDoesNotKnow(t *testing.T) {
	b := newFaultBench(t, echo)
	b.mode("cut:5")
	if _, code := b.ask("?mode=nonsense"); code != http.StatusBadRequest {
		t.Errorf("status %d", code)
	}
	if s, _ := b.ask(""); s.Mode != "cut:5" {
		t.Errorf("the mode is now %s", s.Mode)
	}
}
