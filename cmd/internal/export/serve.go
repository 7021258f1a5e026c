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
	// mostConnections is how many clients are connected at a time: each costs a descriptor, a goroutine and the buffers
	// of its socket. The usual limit of a process is 1,024 descriptors.
	mostConnections = 768
	// mostHeld bounds the bytes of the responses that are in memory because their clients have not read them. One
	// response alone may be longer.
	mostHeld = 64 << 20
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
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       headerTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    headerBytes,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
		ConnState:         newVisitors(e.mostConnections).note,
		Protocols:         new(http.Protocols),
	}
	// HTTP/2 sends many requests over one connection, and visitors bounds connections.
	server.Protocols.SetHTTP1(true)
	if o.WebConfig == "" { // else TLS and users keep foreign pages out
		server.Handler = sameHost(o.Listen, server.Handler)
	}

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		<-ctx.Done()
		shutdown(server)
	}()
	// The toolkit logs for each listener at level info that TLS is off.
	err := web.Serve(listener, server, &web.FlagConfig{WebConfigFile: &o.WebConfig}, slog.New(infoAsDebug{log.Handler()}))
	cancel()
	<-stopped
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("serving on %s: %w", listener.Addr(), err)
}

// shutdown lets the requests under way end, for a while.
func shutdown(server *http.Server) {
	ctx, cancel := context.WithTimeout(context.Background(), shutdownTimeout)
	defer cancel()
	if server.Shutdown(ctx) != nil {
		server.Close()
	}
}

// infoAsDebug passes records of level info on as debug.
type infoAsDebug struct{ slog.Handler }

// Enabled implements slog.Handler.
func (h infoAsDebug) Enabled(ctx context.Context, l slog.Level) bool {
	return h.Handler.Enabled(ctx, lowered(l))
}

// Handle implements slog.Handler.
func (h infoAsDebug) Handle(ctx context.Context, r slog.Record) error {
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

	shelf := newShelf(e.mostHeld)
	zips := sync.Pool{New: func() any {
		z, _ := gzip.NewWriterLevel(nil, gzip.BestSpeed) // the level is valid
		return z
	}}
	mux := http.NewServeMux()
	// Responses of one path and one kind are the same for every client of a poll cycle.
	handle := func(path string, kind func(*http.Request) string, render func(*http.Request, *bytes.Buffer) (contentType string, of stamp, err error)) {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) {
			control := http.NewResponseController(w)
			c, err := shelf.take(r.Context(), path+kind(r), e.now,
				func(b *bytes.Buffer) (string, stamp, error) { return render(r, b) },
				func() error { return control.SetWriteDeadline(time.Unix(1, 0)) }, // long ago
			)
			if err != nil {
				http.Error(w, err.Error(), http.StatusServiceUnavailable)
				return
			}
			defer shelf.release(c)
			shelf.reply(w, r, &zips, c.of)
		})
	}

	handle("/metrics",
		func(r *http.Request) string { return string(expfmt.NegotiateIncludingOpenMetrics(r.Header)) },
		func(r *http.Request, b *bytes.Buffer) (string, stamp, error) { return e.writeMetrics(r, b, process) },
	)
	handle("/v1/counters",
		func(*http.Request) string { return "" },
		func(_ *http.Request, b *bytes.Buffer) (string, stamp, error) { return e.writeJSON(b) },
	)
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		fmt.Fprint(w, "<!doctype html><title>flowtally</title><a href=\"/metrics\">/metrics</a> for Prometheus, <a href=\"/v1/counters\">/v1/counters</a> as JSON\n")
	})
	return mux
}

// writeMetrics writes the metrics in the format that the request asks for. The lock is held while they are encoded, and
// not while a slow client reads.
func (e *Exporter) writeMetrics(r *http.Request, b *bytes.Buffer, process prometheus.Gatherer) (contentType string, of stamp, err error) {
	format := expfmt.NegotiateIncludingOpenMetrics(r.Header)
	encoder := expfmt.NewEncoder(b, format)

	e.mu.Lock()
	defer e.mu.Unlock()
	list, err := e.gather(process)
	if err != nil {
		return "", stamp{}, err
	}
	for _, f := range list {
		if err := encoder.Encode(f); err != nil {
			return "", stamp{}, fmt.Errorf("encoding %s: %w", f.GetName(), err)
		}
	}
	if c, ok := encoder.(expfmt.Closer); ok {
		if err := c.Close(); err != nil {
			return "", stamp{}, err
		}
	}
	return string(format), e.lastLook, nil
}

// writeJSON writes the counters as flowtally get -o json does.
func (e *Exporter) writeJSON(b *bytes.Buffer) (contentType string, of stamp, err error) {
	r, of, err := e.reading()
	if err != nil {
		return "", stamp{}, err
	}
	return "application/json", of, json.NewEncoder(b).Encode(view.ToJSON(r))
}

// reply sends a response, compressed if the client takes that.
func (s *shelf) reply(w http.ResponseWriter, r *http.Request, zips *sync.Pool, of *response) {
	w.Header().Set("Content-Type", of.contentType)
	w.Header().Set("Vary", "Accept-Encoding")
	body := of.body.Bytes()
	if r.Method != http.MethodHead && takesGzip(r.Header) {
		w.Header().Set("Content-Encoding", "gzip")
		body = s.gzipped(of, zips)
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.Write(body)
}

// takesGzip reports whether a client takes a response that is compressed by gzip.
func takesGzip(h http.Header) bool {
	for _, list := range h.Values("Accept-Encoding") {
		for part := range strings.SplitSeq(list, ",") {
			name, weight, _ := strings.Cut(strings.TrimSpace(part), ";")
			if strings.TrimSpace(name) == "gzip" {
				weight = strings.ReplaceAll(weight, " ", "")
				return weight != "q=0" && weight != "q=0.0"
			}
		}
	}
	return false
}
