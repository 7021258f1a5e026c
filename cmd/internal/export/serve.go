package export

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/exporter-toolkit/web"

	"github.com/flowtally/flowtally/cmd/internal/view"
)

// Bounds of a request. A client that is slower loses its connection.
const (
	headerTimeout   = 5 * time.Second
	writeTimeout    = 30 * time.Second
	idleTimeout     = 2 * time.Minute
	headerBytes     = 16 << 10
	shutdownTimeout = 2 * time.Second
	// mostRequests is how many requests are served at a time, so that slow clients leave room for a scrape. Others get
	// status 503.
	mostRequests = 256
	// mostHeld bounds the bytes of the responses that are in memory because their clients have not read them. One
	// response alone may be longer.
	mostHeld = 256 << 20
)

// ServeOptions shape Serve.
type ServeOptions struct {
	// WebConfig is the path of a file of exporter-toolkit: TLS, users, headers. Empty: plain HTTP.
	WebConfig string
	// Listen is the address as the user gave it. Requests over the loopback interface may name its host.
	Listen string
	// Logger; nil discards.
	Logger *slog.Logger
}

// ErrWebConfig: a file of exporter-toolkit has a mistake, or names a file that cannot be read.
var ErrWebConfig = errors.New("reading the web configuration")

// CheckWebConfig refuses a file of exporter-toolkit with a mistake.
func CheckWebConfig(path string) error {
	if err := web.Validate(path); err != nil {
		return fmt.Errorf("%s: %w: %w", path, ErrWebConfig, err)
	}
	return nil
}

// Serve serves metrics and JSON on listener until ctx ends. It closes listener.
func (e *Exporter) Serve(ctx context.Context, listener net.Listener, o ServeOptions) error {
	log := o.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	server := &http.Server{
		Handler:           e.Handler(),
		ReadHeaderTimeout: headerTimeout, ReadTimeout: headerTimeout, WriteTimeout: writeTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: headerBytes,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	if o.WebConfig == "" { // else TLS and users keep foreign pages out
		server.Handler = sameHost(o.Listen, server.Handler)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		<-ctx.Done()
		end, cancel := context.WithTimeout(context.Background(), shutdownTimeout)
		defer cancel()
		if server.Shutdown(end) != nil {
			server.Close()
		}
	}()
	// The toolkit logs at level info that TLS is off, for each listener.
	err := web.Serve(listener, server, &web.FlagConfig{WebConfigFile: &o.WebConfig}, slog.New(debugOnly{log.Handler()}))
	cancel()
	<-stopped
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("serving on %s: %w", listener.Addr(), err)
}

// debugOnly passes records of level info on as debug.
type debugOnly struct{ slog.Handler }

func (h debugOnly) Enabled(ctx context.Context, l slog.Level) bool {
	return h.Handler.Enabled(ctx, lowered(l))
}

func (h debugOnly) Handle(ctx context.Context, r slog.Record) error {
	r.Level = lowered(r.Level)
	return h.Handler.Handle(ctx, r)
}

func lowered(l slog.Level) slog.Level {
	if l == slog.LevelInfo {
		return slog.LevelDebug
	}
	return l
}

// Handler returns the endpoints: /metrics, /v1/counters and a page that names them.
func (e *Exporter) Handler() http.Handler {
	process := prometheus.NewRegistry()
	process.MustRegister(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	slots := make(chan struct{}, mostRequests)
	held := holding{most: e.mostHeld}
	bodies := sync.Pool{New: func() any { return new(bytes.Buffer) }} // of the size that the last ones had
	zips := sync.Pool{New: func() any {
		z, _ := gzip.NewWriterLevel(nil, gzip.BestSpeed) // the level is valid
		return z
	}}
	mux := http.NewServeMux()
	handle := func(path string, render func(*http.Request, *bytes.Buffer) (contentType string, err error)) {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) {
			select {
			case slots <- struct{}{}:
				defer func() { <-slots }()
			default:
				http.Error(w, "too many requests at a time", http.StatusServiceUnavailable)
				return
			}
			body := bodies.Get().(*bytes.Buffer)
			defer bodies.Put(body)
			body.Reset()
			var contentType string
			release, err := held.hold(func() (n int, err error) {
				contentType, err = render(r, body)
				return body.Len(), err
			})
			if err != nil {
				http.Error(w, err.Error(), http.StatusServiceUnavailable)
				return
			}
			defer release()
			reply(w, r, &zips, contentType, body.Bytes())
		})
	}
	handle("/metrics", func(r *http.Request, b *bytes.Buffer) (string, error) { return e.writeMetrics(r, b, process) })
	handle("/v1/counters", func(_ *http.Request, b *bytes.Buffer) (string, error) { return "application/json", e.writeJSON(b) })
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		fmt.Fprint(w, "<!doctype html><title>flowtally</title><a href=\"/metrics\">/metrics</a> for Prometheus, <a href=\"/v1/counters\">/v1/counters</a> as JSON\n")
	})
	return mux
}

// holding is the responses in memory.
type holding struct {
	most      int64
	bytes     atomic.Int64
	rendering sync.Mutex // one response is rendered at a time, so that most is exceeded by one at most
}

var errHeld = errors.New("too many responses wait for their clients")

// hold renders a response, and notes its bytes until release is called.
func (h *holding) hold(render func() (n int, err error)) (release func(), err error) {
	h.rendering.Lock()
	defer h.rendering.Unlock()
	if h.bytes.Load() >= h.most {
		return nil, errHeld
	}
	n, err := render()
	if err != nil {
		return nil, err
	}
	h.bytes.Add(int64(n))
	return func() { h.bytes.Add(-int64(n)) }, nil
}

// writeMetrics writes the metrics in the format that the request asks for. The lock is held for the encoding, and not
// while a slow client reads.
func (e *Exporter) writeMetrics(r *http.Request, b *bytes.Buffer, process prometheus.Gatherer) (string, error) {
	format := expfmt.NegotiateIncludingOpenMetrics(r.Header)
	encoder := expfmt.NewEncoder(b, format)
	e.mu.Lock()
	defer e.mu.Unlock()
	list, err := e.gather(process)
	if err != nil {
		return "", err
	}
	for _, f := range list {
		if err := encoder.Encode(f); err != nil {
			return "", fmt.Errorf("encoding %s: %w", f.GetName(), err)
		}
	}
	if c, ok := encoder.(expfmt.Closer); ok {
		if err := c.Close(); err != nil {
			return "", err
		}
	}
	return string(format), nil
}

func (e *Exporter) writeJSON(b *bytes.Buffer) error {
	r, err := e.Reading()
	if err != nil {
		return err
	}
	return json.NewEncoder(b).Encode(view.ToJSON(r))
}

// reply sends a body, compressed if the client takes that.
func reply(w http.ResponseWriter, r *http.Request, zips *sync.Pool, contentType string, body []byte) {
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Vary", "Accept-Encoding")
	if r.Method == http.MethodHead || !takesGzip(r.Header) {
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		w.Write(body)
		return
	}
	w.Header().Set("Content-Encoding", "gzip")
	z := zips.Get().(*gzip.Writer)
	defer zips.Put(z)
	z.Reset(w)
	z.Write(body)
	z.Close()
}

// takesGzip reports whether a client takes a response that is compressed by gzip.
func takesGzip(h http.Header) bool {
	for _, list := range h.Values("Accept-Encoding") {
		for part := range strings.SplitSeq(list, ",") {
			name, q, _ := strings.Cut(strings.TrimSpace(part), ";")
			if strings.TrimSpace(name) == "gzip" {
				q = strings.ReplaceAll(q, " ", "")
				return q != "q=0" && q != "q=0.0"
			}
		}
	}
	return false
}
