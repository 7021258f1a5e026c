package selftest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/shm"
)

// run is one selftest of an interface.
type run struct {
	Options
	rep    *Report
	ifi    *net.Interface
	svc    dataplane.Service
	mirror *shm.Reader
	others []flow.Flow // of the running instance
}

// Run tests the parts selected by the options. The report also has the untested parts, with the reasons.
// Run removes everything it made on this host before it returns, even if ctx ends.
func Run(ctx context.Context, o Options) (rep *Report, err error) {
	o.defaults()
	unlock, err := lock(lockPath(o.Instance))
	if err != nil {
		return nil, fmt.Errorf("starting a selftest: %w", err)
	}
	defer unlock()
	rep = &Report{Interface: o.Interface}
	if o.Switchdev != "" {
		rep.Switchdev = &Switchdev{Device: o.Device, Reason: o.Switchdev, Function: o.Function}
	}
	defer rep.finish()
	if o.Interface == "" {
		rep.add(notTested("egress", "--interface NAME names an interface"))
		rep.add(notTested("ingress", "--interface NAME names an interface"))
	} else if err := o.testInterface(ctx, rep); err != nil {
		return rep, err
	}
	if o.Device == "" {
		rep.add(notTested("rdma", "--rdma-device NAME names a device"))
		return rep, nil
	}
	return rep, o.testRDMA(ctx, rep)
}

// lockPath returns a path in a directory that only root can write to, so that no other user can block a selftest.
func lockPath(instance string) string { return "/run/flowtally-" + instance + ".lock" }

// lock keeps a second selftest out, because both would use the same names. A process that cannot create a file there goes
// on without this lock. The locks of the temporary instance's mirror and pins still keep a second one out.
func lock(path string) (unlock func(), err error) {
	for {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
		if errors.Is(err, os.ErrPermission) || errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.EROFS) {
			return func() {}, nil
		}
		if err != nil {
			return nil, fmt.Errorf("opening the lock: %w", err)
		}

		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
			f.Close()
			if errors.Is(err, unix.EWOULDBLOCK) {
				return nil, fmt.Errorf("another one runs, and holds %s: %w", path, dataplane.ErrInUse)
			}
			return nil, fmt.Errorf("locking %s: %w", path, err)
		}
		held, err := f.Stat()
		if err != nil {
			f.Close()
			return nil, fmt.Errorf("looking at the lock: %w", err)
		}
		if named, err := os.Lstat(path); err == nil && os.SameFile(held, named) {
			return func() { os.Remove(path); f.Close() }, nil
		}
		f.Close() // the previous holder removed this file before we got its lock: try again with the new file
	}
}

// sweep removes the pins and the files of an instance.
func sweep(instance string) error {
	return errors.Join(os.RemoveAll(filepath.Join("/sys/fs/bpf/flowtally", instance)), sweepMirror(instance))
}

// sweepMirror removes the mirror of an instance, and the files beside it.
func sweepMirror(instance string) error {
	var errs []error
	for _, path := range shm.Files(shm.DefaultPath(instance)) {
		if err := os.Remove(path); !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func (o Options) testInterface(ctx context.Context, rep *Report) (err error) {
	r := &run{Options: o, rep: rep}
	if r.ifi, err = net.InterfaceByName(o.Interface); err != nil {
		return fmt.Errorf("interface %s: %w: %w", o.Interface, dataplane.ErrNotFound, err)
	}
	end, err := r.start(ctx)
	if err != nil && o.Switchdev != "" && ctx.Err() == nil {
		for _, name := range []string{"egress", "ingress", toHost, pastHost} {
			rep.add(notTested(name, err.Error()))
		}
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, end()) }()
	return errors.Join(r.egress(ctx), r.ingress(ctx), r.function(ctx))
}

// start sets r.svc to the running instance if it counts on the interface, or else starts a temporary one. A running
// instance refuses a device in switchdev mode. Callers must
// call end, which removes everything made by start and by the parts.
func (r *run) start(ctx context.Context) (end func() error, err error) {
	if r.Switchdev == "" && r.useRunning(ctx) {
		return func() error { return r.leaveRunning(ctx) }, nil
	}

	// This instance takes over the pins of a killed selftest, if there are any. Its end detaches their programs, too.
	cfg := dataplane.Config{
		Instance:   r.Options.Instance,
		Interfaces: []dataplane.Interface{{Name: r.Interface, Mode: r.Mode}},
		RDMA:       r.RDMA,
	}
	if r.Switchdev != "" {
		// The device alone: what it does not count stays uncounted, XDP is left to others, and no packet is taken away.
		cfg.Backend = flow.RDMA
		cfg.RDMA.Audit = false
		cfg.RDMA.Steal = false
	}
	if r.svc, err = r.Start(ctx, cfg); err != nil {
		return nil, fmt.Errorf("starting the instance of the test: %w", err)
	}
	if err := r.open(ctx); err != nil {
		return nil, errors.Join(err, r.endTemporary())
	}
	return r.endTemporary, nil
}

// useRunning sets r.svc to the running instance, and removes the flows of a killed selftest from it. It returns false if
// no instance runs, or if it does not count on the interface. To find out, it adds a flow for the interface.
func (r *run) useRunning(ctx context.Context) bool {
	if r.Running == nil {
		return false
	}
	svc, err := r.Running(ctx)
	if err != nil {
		return false
	}

	r.svc = svc
	probe := flow.Flow{Name: flowPrefix + "probe", Interface: r.Interface, Match: ethMatch(), Backend: flow.XDP}
	if r.removeFlows(ctx) == nil && r.open(ctx) == nil {
		if _, err := svc.AddFlows(ctx, probe); err == nil && r.removeFlows(ctx) == nil {
			return true
		}
	}

	if r.mirror != nil {
		r.mirror.Close()
	}
	svc.Close()
	r.mirror = nil
	r.others = nil
	return false
}

// removeFlows removes the flows of any selftest, and remembers the others.
func (r *run) removeFlows(ctx context.Context) error {
	placements, err := r.svc.Placements(ctx)
	if err != nil {
		return fmt.Errorf("listing the flows: %w", err)
	}
	var names []string
	r.others = nil
	for _, p := range placements {
		if strings.HasPrefix(p.Flow.Name, flowPrefix) {
			names = append(names, p.Flow.Name)
		} else {
			r.others = append(r.others, p.Flow)
		}
	}
	if len(names) == 0 {
		return nil
	}
	return r.svc.RemoveFlows(ctx, names...)
}

// leaveRunning removes the flows of the test from the running instance, even if ctx has ended.
func (r *run) leaveRunning(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	return errors.Join(r.removeFlows(ctx), r.mirror.Close(), r.svc.Close())
}

// open opens the mirror of the instance.
func (r *run) open(ctx context.Context) error {
	info, err := r.svc.Info(ctx)
	if err != nil {
		return fmt.Errorf("reading the identity of the instance: %w", err)
	}
	r.rep.Instance = info.Instance
	if r.mirror, err = shm.OpenReader(info.Mirror); err != nil {
		return fmt.Errorf("opening the mirror: %w", err)
	}
	return nil
}

// endTemporary ends the temporary instance, and removes its mirror and pins.
func (r *run) endTemporary() error {
	var errs []error
	if r.mirror != nil {
		errs = append(errs, r.mirror.Close())
	}
	return errors.Join(append(errs, r.svc.Close(), sweep(r.Options.Instance))...)
}

func ethMatch() flow.Match {
	return flow.Match{Eth: &flow.Eth{Type: flow.Masked[uint16]{Value: EtherType, Mask: 0xffff}}}
}

// add adds a flow on the interface, and fills in what counts it. It returns an error if another flow of the running
// instance would win over it: an overlapping one of a better priority, or of the same one, because it was added earlier.
func (r *run) add(ctx context.Context, p *Part, f flow.Flow) error {
	f.Name = flowPrefix + f.Name
	f.Interface = r.Interface
	for _, other := range r.others {
		if other.Priority <= f.Priority && flow.Overlap(&other, &f) {
			return fmt.Errorf("flow %s of instance %s has priority %d, and counts the packets of the test first: %w", other.Name, r.rep.Instance, other.Priority, dataplane.ErrInUse)
		}
	}

	placed, err := r.svc.AddFlows(ctx, f)
	if err != nil {
		return err
	}
	if len(placed) != 1 {
		return fmt.Errorf("instance %s returned %d placements of flow %s", r.rep.Instance, len(placed), f.Name)
	}
	p.Source = placed[0].Source.String()
	for _, rejected := range placed[0].Rejected {
		if r.Device != "" || !rejected.Always {
			p.Rejected = append(p.Rejected, rejected.Backend+": "+rejected.Reason)
		}
	}
	return nil
}

// count fills in the counts of a flow, after all packets have been counted.
func (r *run) count(ctx context.Context, p *Part, name string) error {
	v, err := r.settled(ctx, r.mirror, flowPrefix+name)
	p.Counted, p.CountedBytes = v.Packets, v.Bytes
	return err
}

// settled returns the value of a counter once it was sampled after the call and has not changed for o.Quiet.
func (o Options) settled(ctx context.Context, m *shm.Reader, name string) (v shm.Value, err error) {
	after := shm.Now()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()

	since := time.Now()
	for {
		now, err := load(m, name)
		switch {
		case err != nil && !errors.Is(err, shm.ErrBusy) && !errors.Is(err, shm.ErrNotFound):
			return v, fmt.Errorf("reading %s in the mirror: %w", name, err)
		case err != nil || now.SampledAt <= after || now.Packets != v.Packets || now.Bytes != v.Bytes:
			v, since = now, time.Now()
		case time.Since(since) >= o.Quiet:
			return v, nil
		}

		select {
		case <-ctx.Done():
			return v, fmt.Errorf("waiting for the count of %s: %w", name, ctx.Err())
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// load returns the current value of a counter.
func load(m *shm.Reader, name string) (shm.Value, error) {
	h, err := m.Lookup(name)
	if err != nil {
		return shm.Value{}, err
	}
	c, err := m.Counter(h)
	if err != nil {
		return shm.Value{}, err
	}
	return c.Load()
}
