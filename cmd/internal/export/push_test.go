package export

import (
	"bufio"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/slim/otlp/collector/metrics/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/flowtally/flowtally/internal/lab"
)

// guarded is a log that is safe to read while another goroutine writes it.
type guarded struct {
	mu   sync.Mutex
	text strings.Builder
}

func (g *guarded) Write(b []byte) (int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.text.Write(b)
}

func (g *guarded) count(s string) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return strings.Count(g.text.String(), s)
}

// The log has one line when the collector fails, and one when it is back. The metrics count the pushes, and the points
// refused by the collector. The exporter pushes a last time when it ends.
func TestFailingCollectorIsLoggedOnceAndCounted(t *testing.T) {
	m := newMirror(t, webEntry("web"))
	m.publish(map[string][2]uint64{"web": {10, 640}})
	var failing, refusing atomic.Bool
	var last atomic.Int64
	failing.Store(true)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		z, err := gzip.NewReader(r.Body)
		if err != nil {
			t.Error(err)
			return
		}
		body, err := io.ReadAll(z)
		if err != nil {
			t.Error(err)
		}
		if failing.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		in, out := new(collector.ExportMetricsServiceRequest), new(collector.ExportMetricsServiceResponse)
		if err := proto.Unmarshal(body, in); err != nil {
			t.Error(err)
		}
		metric := in.ResourceMetrics[0].ScopeMetrics[0].Metrics[0]
		if metric.Name == "flowtally.packets" {
			last.Store(metric.GetSum().DataPoints[0].GetAsInt())
			if refusing.Load() {
				out.PartialSuccess = &collector.ExportMetricsPartialSuccess{RejectedDataPoints: 1, ErrorMessage: "too old"}
			}
		}
		if got := r.Header.Get("Authorization"); got != "secret" || r.URL.Path != "/v1/metrics" {
			t.Errorf("%s with Authorization %q", r.URL.Path, got)
		}
		body, _ = proto.Marshal(out)
		w.Write(body)
	}))
	defer server.Close()
	var log guarded
	e := newExporter(t, Options{Path: m.path, Logger: loggerTo(&log)})
	p, err := e.Pusher(PushOptions{Endpoint: server.URL, Period: time.Millisecond, Headers: map[string]string{"Authorization": "secret"}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	pushed := func(series string) float64 { return scrape(t, e)[series] }
	lab.Eventually(t, "failed pushes", func() bool { return pushed("flowtally_otlp_pushes_total,result=failed") > 3 })
	if n := log.count("pushing failed"); n != 1 {
		t.Errorf("the failing collector was logged %d times", n)
	}
	failing.Store(false)
	lab.Eventually(t, "a push", func() bool { return last.Load() == 10 && log.count("takes the counters again") == 1 })
	refusing.Store(true)
	lab.Eventually(t, "refused points", func() bool { return pushed("flowtally_otlp_rejected_points_total") > 0 })
	refusing.Store(false)
	lab.Eventually(t, "the second return", func() bool { return log.count("takes the counters again") == 2 })
	m.publish(map[string][2]uint64{"web": {11, 704}})
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if last.Load() != 11 {
		t.Errorf("the last push has %d packets, want 11", last.Load())
	}
}

// A total keeps its start even in a new mirror file. One that begins again gets a later start.
func TestTotalKeepsItsStartUntilItBeginsAgain(t *testing.T) {
	m := newMirror(t, webEntry("web"))
	e := newExporter(t, Options{Path: m.path})
	p := pusherOf(t, e)
	point := func() (start, value int64) {
		t.Helper()
		requests, err := p.requests()
		if err != nil || len(requests) == 0 {
			return 0, 0
		}
		d := requests[0].ResourceMetrics[0].ScopeMetrics[0].Metrics[0].GetSum().DataPoints[0]
		if d.StartTimeUnixNano > d.TimeUnixNano {
			t.Errorf("the start %d is after the sample %d", d.StartTimeUnixNano, d.TimeUnixNano)
		}
		return int64(d.StartTimeUnixNano), d.GetAsInt()
	}
	reach := func(want int64) (start int64) {
		t.Helper()
		lab.Eventually(t, "the value", func() bool { s, v := point(); start = s; return v == want })
		return start
	}
	m.publish(map[string][2]uint64{"web": {10, 640}})
	first := reach(10)
	m.publish(map[string][2]uint64{"web": {20, 1280}})
	if got := reach(20); got != first {
		t.Errorf("the start moved from %d to %d", first, got)
	}
	m.w.Close()
	m.create()
	m.publish(map[string][2]uint64{"web": {30, 1920}})
	if got := reach(30); got != first {
		t.Errorf("the start moved from %d to %d at a takeover", first, got)
	}
	if err := m.w.Remove(m.handles["web"]); err != nil {
		t.Fatal(err)
	}
	m.add(webEntry("web"))
	m.publish(map[string][2]uint64{"web": {40, 2560}})
	second := reach(40)
	if second <= first {
		t.Errorf("another counter of the name starts at %d, the first one at %d", second, first)
	}
	m.publish(map[string][2]uint64{"web": {1, 64}})
	if got := reach(1); got <= second {
		t.Errorf("a total that began again starts at %d, before at %d", got, second)
	}
}

// Following a redirect would hand the authentication headers to another server, and could turn the POST into a GET
// whose success would count as a push. The log must not contain the password in the URL either.
func TestPushFollowsNoRedirection(t *testing.T) {
	m := newMirror(t, webEntry("web"))
	m.publish(map[string][2]uint64{"web": {10, 640}})
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("%s %s with the key %q", r.Method, r.URL, r.Header.Get("X-Api-Key"))
	}))
	defer other.Close()
	for _, status := range []int{http.StatusMovedPermanently, http.StatusFound, http.StatusPermanentRedirect} {
		server := httptest.NewServer(http.RedirectHandler(other.URL, status))
		var log guarded
		e := newExporter(t, Options{Path: m.path, Logger: loggerTo(&log)})
		p, err := e.Pusher(PushOptions{Endpoint: strings.Replace(server.URL, "//", "//user:passw0rd@", 1), Headers: map[string]string{"X-Api-Key": "secret"}})
		if err != nil {
			t.Fatal(err)
		}
		if err := p.push(t.Context()); err == nil || !strings.Contains(err.Error(), other.URL) {
			t.Errorf("status %d: %v", status, err)
		}
		ended, end := context.WithCancel(t.Context())
		end()
		if err := p.Run(ended); err != nil {
			t.Error(err)
		}
		if log.count("pushing failed") != 1 || log.count("passw0rd") != 0 {
			t.Errorf("log: %s", log.text.String())
		}
		server.Close()
	}
}

// The collector claims to have refused more points than we sent, with a very long message.
func TestLyingCollectorNeitherWrapsTheCountNorFillsTheLog(t *testing.T) {
	m := newMirror(t, webEntry("web"))
	m.publish(map[string][2]uint64{"web": {10, 640}})
	lie, err := proto.Marshal(&collector.ExportMetricsServiceResponse{PartialSuccess: &collector.ExportMetricsPartialSuccess{
		RejectedDataPoints: math.MaxInt64, ErrorMessage: strings.Repeat("lie", 20_000),
	}})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write(lie) }))
	defer server.Close()
	e := newExporter(t, Options{Path: m.path})
	p, err := e.Pusher(PushOptions{Endpoint: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.push(t.Context()); err == nil || len(err.Error()) > 1000 {
		t.Errorf("%.100v…", err)
	}
	if n := e.pushes.rejected; n != 3*mostPoints { // three requests: packets, bytes, discontinuities
		t.Errorf("%v points were refused", n)
	}
}

func TestLongRepliesOfACollectorAreCut(t *testing.T) {
	m := newMirror(t, webEntry("web"))
	m.publish(map[string][2]uint64{"web": {10, 640}})
	long := strings.Repeat("no", 100_000)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = http.ReadRequest(bufio.NewReader(c))
			fmt.Fprintf(c, "HTTP/1.1 500 %s\r\nConnection: close\r\n\r\n", long)
			c.Close()
		}
	}()
	rpc, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.UnknownServiceHandler(func(any, grpc.ServerStream) error { return status.Error(codes.Internal, long) }))
	defer server.Stop()
	go func() { _ = server.Serve(rpc) }()

	for _, endpoint := range []string{"http://" + l.Addr().String(), "grpc://" + rpc.Addr().String()} {
		p, err := newExporter(t, Options{Path: m.path}).Pusher(PushOptions{Endpoint: endpoint})
		if err != nil {
			t.Fatal(err)
		}
		if err := p.push(t.Context()); err == nil || len(err.Error()) > 1000 {
			t.Errorf("%s: an error of %d bytes: %.300v", endpoint, len(fmt.Sprint(err)), err)
		}
		if err := p.client.close(); err != nil {
			t.Error(err)
		}
	}
}
