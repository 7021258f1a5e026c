package export

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/flowtally/flowtally/cmd/internal/view"
	"github.com/flowtally/flowtally/internal/lab"
)

func loggerTo(w io.Writer) *slog.Logger { return slog.New(slog.NewTextHandler(w, nil)) }

func pusherOf(t *testing.T, e *Exporter) *Pusher {
	t.Helper()
	p, err := e.Pusher(PushOptions{Endpoint: "http://127.0.0.1:9"})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// Without a mirror there are no counters, and mirror_up is 0. The exporter then finds a mirror created later, a new
// file of the same name, and the totals of the next writer. It survives a truncated file.
func TestExporterFollowsAMirrorThatComesAndGoes(t *testing.T) {
	m := newMirror(t, webEntry("web"))
	path := m.path
	m.publish(map[string][2]uint64{"web": {10, 640}})
	var log strings.Builder
	e := newExporter(t, Options{Path: path + ".later", Logger: loggerTo(&log)})
	s := scrape(t, e)
	s.want(t, "flowtally_mirror_up", 0)
	s.wantNone(t, "flowtally_packets_total")
	s.wantNone(t, "flowtally_writer_state")
	scrape(t, e)
	if n := strings.Count(log.String(), "cannot be read"); n != 1 {
		t.Errorf("the missing mirror was logged %d times:\n%s", n, log.String())
	}
	e.source.path = path
	s = scrape(t, e)
	s.want(t, "flowtally_packets_total,counter=web,direction=ingress", 10)

	m.w.Close()
	s = scrape(t, e) // a dead writer's totals stay, and its state is shown
	s.want(t, "flowtally_packets_total,counter=web,direction=ingress", 10)
	s.want(t, "flowtally_writer_state,state=halt", 1)

	m.create()
	m.publish(map[string][2]uint64{"web": {11, 704}})
	lab.Eventually(t, "the next writer's total", func() bool {
		return scrape(t, e)["flowtally_packets_total,counter=web,direction=ingress"] == 11
	})

	m.w.Close()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	s = scrape(t, e)
	s.want(t, "flowtally_mirror_up", 0)
	s.wantNone(t, "flowtally_packets_total")
	m.create(webEntry("web"))
	m.publish(map[string][2]uint64{"web": {3, 192}})
	lab.Eventually(t, "the total in the file that was made anew", func() bool {
		return scrape(t, e)["flowtally_packets_total,counter=web,direction=ingress"] == 3
	})

	if err := os.Truncate(path, 100); err != nil {
		t.Fatal(err)
	}
	s = scrape(t, e)
	s.want(t, "flowtally_mirror_up", 0)
	s.wantNone(t, "flowtally_packets_total")
	m.w.Close()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	m.create(webEntry("web"))
	m.publish(map[string][2]uint64{"web": {4, 256}})
	lab.Eventually(t, "the total after the file was cut short", func() bool {
		return scrape(t, e)["flowtally_packets_total,counter=web,direction=ingress"] == 4
	})
}

// Scrapes, JSON requests and pushes run concurrently, while the writer publishes and changes the catalogue.
func TestScrapesAtOnceGetWholeReadings(t *testing.T) {
	m := newMirror(t)
	for i := range 200 {
		m.add(webEntry(fmt.Sprintf("c%03d", i)))
	}
	m.publish(map[string][2]uint64{"c000": {1, 64}})
	e := newExporter(t, Options{Path: m.path})
	h, p := e.Handler(), pusherOf(t, e)
	var pushing sync.Mutex
	var all sync.WaitGroup
	ended := make(chan struct{})
	all.Go(func() {
		for n := uint64(2); ; n++ {
			select {
			case <-ended:
				return
			default:
			}
			m.publish(map[string][2]uint64{"c000": {n, n * 64}})
			if n%8 == 0 {
				m.add(webEntry(fmt.Sprintf("n%d", n)))
				if err := m.w.Remove(m.handles[fmt.Sprintf("n%d", n)]); err != nil {
					t.Error(err)
				}
			}
		}
	})
	var clients sync.WaitGroup
	for range 4 {
		clients.Go(func() {
			for range 20 {
				body, _ := fetch(t, h, "/metrics", "")
				s := parse(t, body)
				n := s["flowtally_packets_total,counter=c000,direction=ingress"]
				if n == 0 || s["flowtally_bytes_total,counter=c000,direction=ingress"] != n*64 {
					t.Errorf("packets %v, bytes %v", n, s["flowtally_bytes_total,counter=c000,direction=ingress"])
				}
				fetch(t, h, "/v1/counters", "")
				pushing.Lock()
				if _, err := p.requests(); err != nil {
					t.Error(err)
				}
				pushing.Unlock()
			}
		})
	}
	clients.Wait()
	close(ended)
	all.Wait()
}

// 65,536 counters are exported over HTTP, and pushed in requests small enough for a collector.
func TestManyCountersFitScrapesAndPushes(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	const n = 65_536
	m := newMirror(t)
	values := make(map[string][2]uint64, n)
	var packets float64
	for i := range n {
		name := fmt.Sprintf("tenant-%05d", i)
		m.add(webEntry(name))
		values[name] = [2]uint64{uint64(i), uint64(i) * 64}
		packets += float64(i)
	}
	m.publish(values)
	e := newExporter(t, Options{Path: m.path, MaxCounters: n})
	sum, series := 0.0, 0
	for id, v := range scrape(t, e) {
		if strings.HasPrefix(id, "flowtally_packets_total,") {
			sum += v
			series++
		}
	}
	if series != n || sum != packets {
		t.Errorf("%d series, sum %v, want %d, %v", series, sum, n, packets)
	}
	requests, err := pusherOf(t, e).requests()
	if err != nil {
		t.Fatal(err)
	}
	points := 0
	for _, r := range requests {
		for _, metric := range r.ResourceMetrics[0].ScopeMetrics[0].Metrics {
			points += len(metric.GetSum().DataPoints)
		}
		if size := proto.Size(r); size > 4<<20 {
			t.Errorf("a request has %d bytes", size)
		}
	}
	if points != 3*n {
		t.Errorf("%d data points", points)
	}
	t.Logf("%d requests for %d points", len(requests), points)
}

// Some clients never finish their request, or never read the response.
func TestSlowClientsStarveNoOther(t *testing.T) {
	m := newMirror(t, webEntry("web"))
	m.publish(map[string][2]uint64{"web": {10, 640}})
	e := newExporter(t, Options{Path: m.path})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- e.Serve(ctx, l, ServeOptions{}) }()
	for i := range mostConnections / 2 {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		request := "GET /metrics HTTP/1.1\r\nHost: x\r\nX-Slow: "
		if i%2 == 0 {
			request = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"
		}
		if _, err := io.WriteString(c, request); err != nil {
			t.Fatal(err)
		}
	}
	response, err := http.Get("http://" + l.Addr().String() + "/v1/counters")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	var r view.ReadingJSON
	if err := json.NewDecoder(response.Body).Decode(&r); err != nil || len(r.Counters) != 1 || *r.Counters[0].Packets != 10 {
		t.Errorf("%v: %+v", err, r)
	}
	for _, path := range []string{"/nothing", "/metrics/x"} {
		response, err := http.Get("http://" + l.Addr().String() + path)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != http.StatusNotFound {
			t.Errorf("%s: %s", path, response.Status)
		}
	}
	cancel()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Error("Serve does not end while clients are slow")
	}
}

// stuck is the response to a client that reads nothing until release is closed.
type stuck struct {
	*httptest.ResponseRecorder
	began, release chan struct{}
	once           sync.Once
}

func (s *stuck) Write(b []byte) (int, error) {
	s.once.Do(func() { close(s.began) })
	<-s.release
	return s.ResponseRecorder.Write(b)
}

// While unread responses fill the memory, the next client gets status 503. It gets the counters once they were read.
func TestUnreadResponsesAreBoundedInMemory(t *testing.T) {
	m := newMirror(t, webEntry("web"))
	m.publish(map[string][2]uint64{"web": {10, 640}})
	e := newExporter(t, Options{Path: m.path})
	e.mostHeld = 1
	h := e.Handler()
	s := &stuck{ResponseRecorder: httptest.NewRecorder(), began: make(chan struct{}), release: make(chan struct{})}
	done := make(chan struct{})
	go func() {
		defer close(done)
		h.ServeHTTP(s, httptest.NewRequest(http.MethodGet, "/v1/counters", nil))
	}()
	<-s.began
	get := func() int {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		return w.Code
	}
	if code := get(); code != http.StatusServiceUnavailable {
		t.Errorf("status %d while a response is held", code)
	}
	close(s.release)
	<-done
	if code := get(); code != http.StatusOK || s.Code != http.StatusOK {
		t.Errorf("status %d afterwards, %d of the one that was held", code, s.Code)
	}
}

// By DNS rebinding a web page sends a request over the loopback interface that names the page's own host. The names of
// this host must still work.
func TestPageOfAnotherHostGetsNoCounters(t *testing.T) {
	m := newMirror(t, webEntry("web"))
	m.publish(map[string][2]uint64{"web": {10, 640}})
	e := newExporter(t, Options{Path: m.path})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- e.Serve(ctx, l, ServeOptions{Listen: "metrics.example.com:9790"}) }()
	for host, want := range map[string]int{
		"evil.example": 403, "evil.example:9790": 403, "EVIL.example.": 403, "127.0.0.1.evil.example": 403, "localhost.evil.example": 403,
		"localhost:9790": 200, "localhost": 200, "web.localhost": 200, "127.0.0.1:9790": 200, "[::1]:9790": 200, "[::1]": 200, "host": 200,
		"Metrics.example.com:9790": 200,
	} {
		request, err := http.NewRequest(http.MethodGet, "http://"+l.Addr().String()+"/v1/counters", nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Host = host
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != want {
			t.Errorf("%s: %s, want %d", host, response.Status, want)
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
