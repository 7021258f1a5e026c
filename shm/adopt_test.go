package shm

import "testing"

// A writer that takes over finishes a Remove during which the writer before was killed: the row of the counter becomes
// zero under a raised epoch, and the other rows stay.
func TestAKilledRemoveIsFinished(t *testing.T) {
	for name, latency := range map[string]bool{"block": false, "record": true} {
		t.Run(name, func(t *testing.T) {
			s, v := newHeap(t, 2, 0)
			v.ready()
			o := Options{Path: "heap"}.withDefaults()
			w, err := newWriter(o, v, nil)
			if err != nil {
				t.Fatal(err)
			}
			gone, stays := mustAdd(t, w, Entry{Name: "gone", Latency: latency}), mustAdd(t, w, Entry{Name: "stays", Latency: latency})
			var rows Block
			rows[gone.Index], rows[stays.Index] = Value{Packets: 1, SampledAt: 1}, Value{Packets: 2, SampledAt: 1}
			w.BeginCycle()
			if latency {
				w.PublishRecord(gone.Index, rows[gone.Index])
				w.PublishRecord(stays.Index, rows[stays.Index])
			} else {
				w.PublishBlock(0, &rows)
			}
			w.EndCycle(1)
			row := func(v *view, h Handle) (Value, uint64) {
				p := v.slot(h.Index)
				if latency {
					r := p.record()
					return r.slots[r.seq&1], epochOf(r.seq)
				}
				b := p.block()
				return b.copy(*b.seq()).values[h.Index%BlockLen], epochOf(*b.seq())
			}
			before, epoch := row(v, gone)
			if before != rows[gone.Index] {
				t.Fatalf("the row shows %+v", before)
			}
			w.hook = func(step string) {
				if step == "remove-retired" {
					panic(step)
				}
			}
			func() {
				defer func() { _ = recover() }()
				_ = w.Remove(gone)
				t.Error("Remove came to its end")
			}()
			if v, err = attach(s); err != nil {
				t.Fatal(err)
			}
			if _, err := newWriter(o, v, nil); err != nil {
				t.Fatal(err)
			}
			if now, raised := row(v, gone); now != (Value{}) || raised != epoch+1 {
				t.Errorf("the row shows %+v of epoch %d, want zero of epoch %d", now, raised, epoch+1)
			}
			if now, _ := row(v, stays); now != rows[stays.Index] {
				t.Errorf("the other row shows %+v, want %+v", now, rows[stays.Index])
			}
			noProblems(t, checkBytes(s.b))
		})
	}
}
