package export

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"
)

// RunOptions shape Run.
type RunOptions struct {
	Options
	Listen    string // the address to serve on; "-": none
	WebConfig string // see ServeOptions
	Push      PushOptions
	Ready     func() error // called once the exporter serves and pushes; an error ends Run
}

// Validate returns the first mistake in the options.
func (o RunOptions) Validate() error {
	if err := ValidateLabelKeys(o.LabelKeys); err != nil {
		return fmt.Errorf("--label-keys: %w", err)
	}
	if o.MaxCounters < 1 {
		return fmt.Errorf("--max-counters %d: at least 1", o.MaxCounters)
	}
	if o.WebConfig != "" {
		if err := validateWebConfig(o.WebConfig); err != nil {
			return err
		}
	}
	if o.Push.Endpoint != "" {
		if err := validateEndpoint(o.Push.Endpoint); err != nil {
			return fmt.Errorf("--otlp: %w", err)
		}
		if o.Push.Period < 100*time.Millisecond {
			return fmt.Errorf("--otlp-period %s: at least 100ms", o.Push.Period)
		}
	}
	if o.Listen == "-" && o.Push.Endpoint == "" {
		return errors.New("--listen - without --otlp: nothing would be exported")
	}
	return nil
}

// ErrListen: the address to serve on is taken, or is not one of this host.
var ErrListen = errors.New("address cannot be listened on")

// Run serves and pushes the counters until ctx ends, or until one of the two fails. Callers must call Validate first.
func Run(ctx context.Context, o RunOptions) error {
	e := New(o.Options)
	defer e.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go e.conditions.watch(ctx)

	ends := make(chan error, 2)
	running := 0
	start := func(run func() error) {
		running++
		go func() { ends <- run() }()
	}

	if o.Listen != "-" {
		listener, err := net.Listen("tcp", o.Listen)
		if err != nil {
			return fmt.Errorf("listening on %s: %w: %w", o.Listen, ErrListen, err)
		}
		e.log.Info("serving", "address", listener.Addr().String(), "tls_or_users", o.WebConfig != "")
		start(func() error {
			return e.Serve(ctx, listener, ServeOptions{WebConfig: o.WebConfig, Listen: o.Listen, Logger: e.log})
		})
	}

	e.begin()
	var err error
	if o.Push.Endpoint != "" {
		var p *Pusher
		if p, err = e.Pusher(o.Push); err == nil {
			e.log.Info("pushing", "endpoint", withoutPassword(o.Push.Endpoint), "period", o.Push.Period)
			start(func() error { return p.Run(ctx) })
		}
	}
	if err == nil && o.Ready != nil {
		err = o.Ready()
	}

	// Serving and pushing end together: if one fails or does not even start, the other one stops.
	if err != nil {
		cancel()
	}
	for range running {
		err = errors.Join(err, <-ends)
		cancel()
	}
	return err
}
