package demo

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/shm"
)

// Run sets everything up, sends, compares and cleans up. When ctx ends early
// it stops sending, and still compares the counts so far. The error is about a step that could not
// be taken; counts that differ are in the report.
func Run(ctx context.Context, o Options) (_ Report, err error) {
	if o.For == 0 {
		o.For = 5 * time.Second
	}
	if o.Instance == "" {
		o.Instance = lab.Unique("demo-")
	}
	if o.Device == "" {
		o.Device = "mlx5_0"
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	cleanup := &cleaner{}
	defer func() { err = errors.Join(err, cleanup.run()) }()

	links, err := build(o, cleanup)
	if err != nil {
		return Report{}, err
	}
	r := &run{o: o, links: links, start: time.Now()}
	for _, in := range instances(o, links) {
		if err := r.launch(ctx, in, cleanup); err != nil {
			return Report{}, err
		}
	}
	r.setPhase("starting")
	if o.Progress != nil {
		defer r.show(r.mirrors[0].r.Path())()
	}
	if err := r.send(ctx); err != nil {
		return Report{}, err
	}
	r.setPhase("comparing")
	// A canceled context must not keep the last poll cycle from being awaited.
	wait, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	for _, m := range r.mirrors {
		if err := m.settle(wait); err != nil {
			return Report{}, err
		}
	}
	counts, err := r.counts()
	rep := report(counts)
	if o.Backend == "rdma" {
		rep.Backend, rep.SoftwareNIC = "rdma", true
	}
	return rep, err
}

// run is the state of one Run while traffic flows.
type run struct {
	o       Options
	links   []*link
	mirrors []*mirror // of the backend that is shown, and of XDP beside it
	start   time.Time

	mu    sync.Mutex
	phase string
}

func (r *run) setPhase(phase string) {
	r.mu.Lock()
	r.phase = phase
	r.mu.Unlock()
	r.o.Logger.Debug("phase", "phase", phase)
}

// show calls Progress until the returned function is.
func (r *run) show(path string) func() {
	stop := make(chan struct{})
	var done sync.WaitGroup
	done.Go(func() {
		tick := time.NewTicker(200 * time.Millisecond)
		defer tick.Stop()
		for {
			if counts, err := r.counts(); err == nil {
				r.mu.Lock()
				phase := r.phase
				r.mu.Unlock()
				r.o.Progress(Progress{Phase: phase, Mirror: path, Elapsed: time.Since(r.start), Flows: counts})
			}
			select {
			case <-stop:
				return
			case <-tick.C:
			}
		}
	})
	return func() { close(stop); done.Wait() }
}

// send sends every stream: the kernel's TCP first, while the ring of the receiving
// end is otherwise empty (TCP would send a segment again that a full ring drops,
// and the observer has counted it), then the raw frames at full speed.
func (r *run) send(ctx context.Context) error {
	for _, l := range r.links {
		r.setPhase("TCP streams of the kernel on " + l.near.Name)
		if err := l.stream(ctx); err != nil && ctx.Err() == nil {
			return err
		}
	}
	r.setPhase("raw frames")
	during, cancel := context.WithTimeout(ctx, r.o.For)
	defer cancel()
	var wg sync.WaitGroup
	errs := make(chan error, 16)
	for _, l := range r.links {
		for _, s := range l.senders {
			wg.Go(func() {
				if err := s.Run(during, 0); err != nil {
					errs <- err
				}
			})
		}
	}
	wg.Wait()
	close(errs)
	var all []error
	for err := range errs {
		all = append(all, err)
	}
	settle, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	for _, l := range r.links {
		for _, s := range l.senders {
			all = append(all, s.Settle(settle))
		}
	}
	return errors.Join(all...)
}

// counts puts the sent beside the counted, in the order of the flows.
func (r *run) counts() ([]Count, error) {
	values, err := r.mirrors[0].values()
	if err != nil {
		return nil, err
	}
	var beside map[string]shm.Value
	if len(r.mirrors) > 1 {
		if beside, err = r.mirrors[1].values(); err != nil {
			return nil, err
		}
	}
	var counts []Count
	for _, l := range r.links {
		sent := l.sent()
		for _, f := range l.flows {
			v := values[f.Name]
			c := Count{
				Name:        f.Name,
				SentPackets: sent[f.Name].Packets, SentBytes: sent[f.Name].Bytes,
				Packets: v.Packets, Bytes: v.Bytes,
			}
			if beside != nil {
				x := beside[f.Name]
				c.XDPPackets, c.XDPBytes, c.Source = &x.Packets, &x.Bytes, r.mirrors[0].sources[f.Name]
			}
			counts = append(counts, c)
		}
	}
	return counts, nil
}

func pinDir(instance string) string { return filepath.Join("/sys/fs/bpf/flowtally", instance) }

// unused refuses an instance that left something or runs: the demo removes
// everything of its own at the end.
func unused(instance string) error {
	for _, path := range []string{mirrorPath(instance), pinDir(instance)} {
		if _, err := os.Lstat(path); err == nil {
			return fmt.Errorf("instance %s: %s is there: %w", instance, path, dataplane.ErrInUse)
		}
	}
	return nil
}

// Sweep removes the files that an instance with the default paths leaves on purpose, or by
// a crash: its mirror, with the files beside it, and its pins. Its plugin must have ended.
func Sweep(instance string) error {
	errs := []error{os.RemoveAll(pinDir(instance))}
	for _, path := range shm.Files(mirrorPath(instance)) {
		err := os.Remove(path)
		if !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// cleaner runs the functions that were added to it, last first.
type cleaner struct{ fns []func() error }

func (c *cleaner) add(fn func() error) { c.fns = append(c.fns, fn) }

func (c *cleaner) run() error {
	var errs []error
	for _, fn := range slices.Backward(c.fns) {
		errs = append(errs, fn())
	}
	return errors.Join(errs...)
}
