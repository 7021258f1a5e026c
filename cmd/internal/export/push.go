package export

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"sync"
	"time"
)

// PushOptions shape a Pusher.
type PushOptions struct {
	// Endpoint is a URL: http or https for protobuf over HTTP, grpc or grpcs for gRPC.
	Endpoint string
	// Period between two pushes. 0 means a minute.
	Period time.Duration
	// Headers are sent with each request, for authentication.
	Headers map[string]string
}

// pushTimeout bounds each push, so a hanging collector delays the end of the program by no more than this.
const pushTimeout = 10 * time.Second

// pushes counts the pushes, for the exporter's own metrics.
type pushes struct {
	mu         sync.Mutex
	on         bool
	ok, failed float64
	rejected   float64   // points that the collector refused
	last       time.Time // of success
}

func (p *pushes) render(g *gauges) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.on {
		return
	}
	const help = "Pushes to the collector by their result."
	g.counter("flowtally_otlp_pushes_total", help, p.ok, label{"result", "ok"})
	g.counter("flowtally_otlp_pushes_total", help, p.failed, label{"result", "failed"})
	g.counter("flowtally_otlp_rejected_points_total", "Data points that the collector refused.", p.rejected)
	if !p.last.IsZero() {
		g.gauge("flowtally_otlp_last_success_time_seconds", "Time of the last successful push, in seconds since 1970.", float64(p.last.UnixNano())/1e9)
	}
}

// add counts one push.
func (p *pushes) add(err error, rejected int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rejected += float64(rejected)
	if err != nil {
		p.failed++
		return
	}
	p.ok++
	p.last = time.Now()
}

// Run pushes every period until ctx ends, and then once more. Failed pushes are not queued: totals are cumulative, so
// the next push makes up for them. Run closes the client when it returns, so callers must call it only once.
func (p *Pusher) Run(ctx context.Context) error {
	tick := time.NewTicker(cmp.Or(p.options.Period, time.Minute))
	defer tick.Stop()
	for {
		p.pushOrComplain(ctx)
		select {
		case <-ctx.Done():
			p.pushOrComplain(context.WithoutCancel(ctx))
			return p.client.close()
		case <-tick.C:
		}
	}
}

// pushOrComplain pushes once, within pushTimeout. It logs the first failure, and the first success after it.
func (p *Pusher) pushOrComplain(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, pushTimeout)
	defer cancel()
	err := p.push(ctx)
	failed := err != nil
	if failed == p.failing {
		return
	}

	p.failing = failed
	endpoint := withoutPassword(p.options.Endpoint)
	if failed {
		p.of.log.Warn("pushing failed; totals are cumulative, so that the next push makes up for this one", "endpoint", endpoint, "err", err)
		return
	}
	p.of.log.Info("the collector takes the counters again", "endpoint", endpoint)
}

// Pusher pushes the counters of an Exporter to a collector. Use Exporter.Pusher to make one.
type Pusher struct {
	of          *Exporter
	options     PushOptions
	client      client
	startByName map[string]start // by name of the counter
	failing     bool             // the last push failed, and was logged
}

// Pusher returns a Pusher of the counters. The error is ErrEndpoint if o.Endpoint does not name a collector.
func (e *Exporter) Pusher(o PushOptions) (*Pusher, error) {
	c, err := newClient(o)
	if err != nil {
		return nil, err
	}
	e.pushes.mu.Lock()
	e.pushes.on = true
	e.pushes.mu.Unlock()
	return &Pusher{of: e, options: o, client: c, startByName: make(map[string]start)}, nil
}

// push pushes once. An unreadable mirror is not a failed push: there is nothing to push, and complain logs it.
func (p *Pusher) push(ctx context.Context) error {
	requests, err := p.requests()
	if err != nil {
		return nil
	}

	var rejected int64
	var reason string
	for _, r := range requests {
		response, callErr := p.client.push(ctx, r)
		if callErr != nil {
			err = cutError{callErr}
			break
		}
		if s := response.GetPartialSuccess(); s.GetRejectedDataPoints() > 0 {
			rejected += min(s.GetRejectedDataPoints(), mostPoints) // do not trust a number above the request's
			reason = s.GetErrorMessage()
		}
	}
	if err == nil && rejected > 0 {
		err = fmt.Errorf("the collector refused %d data points: %.300s", rejected, reason)
	}
	p.of.pushes.add(err, rejected)
	return err
}

// cutError is an error with a shortened text. The collector writes part of the text, and may write any length.
type cutError struct{ error }

// mostErrorText is where cutError cuts, in bytes.
const mostErrorText = 500

func (e cutError) Error() string {
	text := e.error.Error()
	if len(text) <= mostErrorText {
		return text
	}
	return strings.ToValidUTF8(text[:mostErrorText], "") + "…"
}

func (e cutError) Unwrap() error { return e.error }
