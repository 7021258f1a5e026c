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

// Limits on clients. A client that exceeds one loses its connection.
const (
	headerTimeout   = 5 * time.Second
	writeTimeout    = 30 * time.Second
	idleTimeout     = 2 * time.Minute
	headerBytes     = 16 << 10
	shutdownTimeout = 2 * time.Second
	// mostConnections is the most connections at a time. Each one costs a descriptor, a goroutine and socket buffers, and
	// a process usually may open 1,024 descriptors.
	mostConnections = 768
	// mostHeld is the most bytes of responses in memory while slow clients read them. A single response may be longer.
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

// ErrWebConfig: the web configuration file has a mistake, or names an unreadable file.
var ErrWebConfig = errors.New("reading the web configuration")

// validateWebConfig returns ErrWebConfig with the reason if exporter-toolkit would refuse the file.
func validateWebConfig(path string) error {
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
	// HTTP/1 only: HTTP/2 sends many requests over one connection, and visitors only limits connections.
	server.Protocols.SetHTTP1(true)
	if o.WebConfig == "" { // with TLS or users a foreign page gets nowhere
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
	// Log the toolkit's info messages as debug: it says "TLS is disabled" for each listener.
	err := web.Serve(listener, server, &web.FlagConfig{WebConfigFile: &o.WebConfig}, slog.New(infoAsDebug{log.Handler()}))
	cancel()
	<-stopped
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("serving on %s: %w", listener.Addr(), err)
}

// shutdown gives requests under way shutdownTimeout to end, and then closes their connections.
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

// Handler returns the endpoints: /metrics, /v1/counters, and a page with links to both.
func (e *Exporter) Handler() http.Handler {
	process := prometheus.NewRegistry()
	process.MustRegister(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	h := &endpoints{of: e, process: process, shelf: newShelf(e.mostHeld)}
	h.zips.New = func() any {
		z, _ := gzip.NewWriterLevel(nil, gzip.BestSpeed) // the level is valid
		return z
	}

	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", h.metrics)
	mux.HandleFunc("GET /v1/counters", h.counters)
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		fmt.Fprint(w, "<!doctype html><title>flowtally</title><a href=\"/metrics\">/metrics</a> for Prometheus, <a href=\"/v1/counters\">/v1/counters</a> as JSON\n")
	})
	return mux
}

// endpoints serves the counters. All clients of one poll cycle share one response.
type endpoints struct {
	of      *Exporter
	process prometheus.Gatherer // metrics of this process
	shelf   *shelf
	zips    sync.Pool // of *gzip.Writer
}

// metrics serves /metrics. The shelf keeps one response per format.
func (h *endpoints) metrics(w http.ResponseWriter, r *http.Request) {
	format := expfmt.NegotiateIncludingOpenMetrics(r.Header)
	h.serve(w, r, "/metrics"+string(format), func(b *bytes.Buffer) (string, stamp, error) {
		of, err := h.of.writeMetrics(b, format, h.process)
		return string(format), of, err
	})
}

// counters serves /v1/counters.
func (h *endpoints) counters(w http.ResponseWriter, r *http.Request) {
	h.serve(w, r, "/v1/counters", func(b *bytes.Buffer) (string, stamp, error) {
		of, err := h.of.writeJSON(b)
		return "application/json", of, err
	})
}

// serve sends the response of a kind: the one on the shelf if it is current, else a new one made by render.
func (h *endpoints) serve(w http.ResponseWriter, r *http.Request, kind string, render func(*bytes.Buffer) (string, stamp, error)) {
	control := http.NewResponseController(w)
	c, err := h.shelf.take(r.Context(), request{
		kind:   kind,
		now:    h.of.now,
		render: render,
		cut:    func() error { return control.SetWriteDeadline(time.Unix(1, 0)) }, // in the past: writes fail at once
	})
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	defer h.shelf.release(c)
	h.reply(w, r, c.response)
}

// writeJSON encodes the counters into b, as flowtally get -o json prints them.
func (e *Exporter) writeJSON(b *bytes.Buffer) (stamp, error) {
	r, of, err := e.reading()
	if err != nil {
		return stamp{}, err
	}
	return of, json.NewEncoder(b).Encode(view.ToJSON(r))
}

// reply sends a response, compressed if the client accepts gzip.
func (h *endpoints) reply(w http.ResponseWriter, r *http.Request, of *response) {
	w.Header().Set("Content-Type", of.contentType)
	w.Header().Set("Vary", "Accept-Encoding")
	body := of.body.Bytes()
	if r.Method != http.MethodHead && acceptsGzip(r.Header) {
		w.Header().Set("Content-Encoding", "gzip")
		body = h.shelf.gzipped(of, &h.zips)
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.Write(body)
}

// acceptsGzip reports whether the client accepts a response compressed by gzip.
func acceptsGzip(h http.Header) bool {
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
