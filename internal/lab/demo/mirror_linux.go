package demo

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/shm"
)

func mirrorPath(instance string) string { return shm.DefaultPath(instance) }

// mirror reads the flows' values as any other process would.
type mirror struct {
	r       *shm.Reader
	names   []string
	handles []shm.Handle
	sources map[string]string // by name, as they were at the start
}

func openMirror(path string, flows []flow.Flow) (*mirror, error) {
	r, err := shm.OpenReader(path)
	if err != nil {
		return nil, fmt.Errorf("opening the mirror: %w", err)
	}
	m := &mirror{r: r, sources: map[string]string{}}
	for _, f := range flows {
		h, err := r.Lookup(f.Name)
		if err != nil {
			r.Close()
			return nil, fmt.Errorf("looking up %s in the mirror: %w", f.Name, err)
		}
		e, err := r.Entry(h)
		if err != nil {
			r.Close()
			return nil, fmt.Errorf("reading the entry of %s in the mirror: %w", f.Name, err)
		}
		m.names, m.handles = append(m.names, f.Name), append(m.handles, h)
		m.sources[f.Name] = e.Source
	}
	return m, nil
}

func (m *mirror) close() error { return m.r.Close() }

// busyTries bounds how often a writer may get in the way of one reading.
const busyTries = 100

// values reads every flow once. It may be called from any goroutine.
func (m *mirror) values() (map[string]shm.Value, error) {
	var s shm.Snapshot
	for try := 1; ; try++ {
		err := m.r.SnapshotOf(&s, m.handles)
		if err == nil {
			break
		}
		if !errors.Is(err, shm.ErrBusy) || try == busyTries {
			return nil, fmt.Errorf("reading the mirror: %w", err)
		}
		time.Sleep(time.Millisecond)
	}
	values := make(map[string]shm.Value, len(m.names))
	for i, name := range m.names {
		values[name] = s.List[i]
	}
	return values, nil
}

// quietTime is how long nothing may have changed before the counts are final.
const quietTime = 100 * time.Millisecond

// settle waits for the values that are final: every one sampled after now, and
// none that changed for a while since. It never looks at the sent counts.
func (m *mirror) settle(ctx context.Context) error {
	after := shm.Now()
	var last map[string]shm.Value
	var since time.Time
	for {
		now, err := m.values()
		if err != nil {
			return err
		}
		fresh := true
		for _, v := range now {
			fresh = fresh && v.SampledAt > after
		}
		if !fresh || !maps.EqualFunc(now, last, sameCount) {
			last, since = now, time.Now()
		} else if time.Since(since) >= quietTime {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for the poll cycle after the last frame: the mirror %s shows no newer values: %w", m.r.Path(), ctx.Err())
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func sameCount(a, b shm.Value) bool { return a.Packets == b.Packets && a.Bytes == b.Bytes }
