package shm

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Two goroutines add, change and remove counters while one runs cycles and another reads. The
// reader must find each source and each value whole.
func TestControlCallsBesideCyclesShowNoHalfChange(t *testing.T) {
	w, r := heapMirror(t, 256, 8, 64, Options{CoolDown: -1})
	w.coolDown = 0
	var done atomic.Bool
	var wg sync.WaitGroup
	run := func(fn func(i int) error) {
		wg.Go(func() {
			for i := 0; !done.Load(); i++ {
				if err := fn(i); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	run(func(i int) error {
		var vals Block
		for j := range vals {
			vals[j] = patterned(uint64(i + j))
		}
		w.BeginCycle()
		for b := range 4 {
			w.PublishBlock(b, &vals)
		}
		for l := range uint32(8) {
			w.PublishRecord(256+l, patterned(uint64(i)))
		}
		w.EndCycle(Now())
		return nil
	})
	for g := range 2 {
		run(func(i int) error {
			h, err := w.Add(Entry{Name: fmt.Sprintf("g%d-%d", g, i), Latency: i%3 == 0, Text: "udp"})
			if err != nil {
				return err
			}
			err = errors.Join(w.SetSource(h, fmt.Sprint(i), "l2"), w.SetFlags(h, i%2 == 0, false, false), w.SetContinuity(h, Continuity{Cookie: uint64(i)}))
			if _, lerr := w.Last(h); lerr != nil {
				err = errors.Join(err, lerr)
			}
			w.Heartbeat(Now())
			return errors.Join(err, w.Remove(h))
		})
	}
	run(func(int) error {
		es, err := r.Entries()
		if err != nil {
			return err
		}
		var s Snapshot
		if err := r.Snapshot(&s); err != nil && !errors.Is(err, ErrBusy) {
			return err
		}
		for _, e := range es {
			if e.Source != "" && e.ByteBasis != "l2" {
				return fmt.Errorf("half a source: %+v", e)
			}
			v, err := s.Value(e.Handle)
			if err == nil && !isPatterned(v) {
				return fmt.Errorf("%s reads %v", e.Name, v)
			}
		}
		return nil
	})
	time.Sleep(300 * time.Millisecond)
	done.Store(true)
	wg.Wait()
	if n := len(w.Entries()); n != 0 {
		t.Errorf("%d entries left", n)
	}
}
