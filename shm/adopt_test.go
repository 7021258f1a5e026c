package shm

import (
	"fmt"
	"testing"
)

// If a writer is killed in Remove, the next one finishes it: the counter's row becomes zero under a raised epoch, and the
// other rows do not change.
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

// A writer is killed in an Exchange of two names, and the next one at each step of its takeover. The third must find each
// total exactly once.
func TestAKilledExchangeIsFinished(t *testing.T) {
	want := map[string]Value{"flow a": {Packets: 1, SampledAt: 1}, "flow b": {Packets: 2, SampledAt: 1}}
	// run calls fn, and ends it at the n-th step. It returns whether fn came to its end.
	run := func(hook *hook, n int, fn func()) (ended bool) {
		defer func() { _ = recover() }()
		*hook = func(string) {
			if n--; n < 0 {
				panic("killed")
			}
		}
		fn()
		return true
	}
	for ended, n := false, 0; !ended; n++ {
		for adopted, m := false, 0; !adopted; m++ {
			s, v := newHeap(t, 2, 0)
			v.ready()
			o := Options{Path: "heap"}.withDefaults()
			w, err := newWriter(o, v, nil)
			if err != nil {
				t.Fatal(err)
			}
			a, b := mustAdd(t, w, Entry{Name: "a", Text: "flow a"}), mustAdd(t, w, Entry{Name: "b", Text: "flow b", Latency: true})
			w.BeginCycle()
			w.PublishBlock(0, &Block{want["flow a"]})
			w.PublishRecord(b.Index, want["flow b"])
			w.EndCycle(1)
			ended = run(&w.hook, n, func() {
				_, err = w.Exchange([]Handle{a, b}, []Entry{{Name: "b", Text: "flow a", Latency: true}, {Name: "a", Text: "flow b"}}, []bool{true, true})
			})
			if err != nil {
				t.Fatal(err)
			}
			takeOver := func() {
				if v, err = attach(s); err == nil {
					w, err = newWriter(o, v, nil)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			adopted = run(&o.hook, m, takeOver)
			o.hook = nil
			takeOver()
			object := fmt.Sprintf("killed at step %d, then at %d", n, m)
			if es := w.Entries(); len(es) != 2 || es[0].Text == es[1].Text || es[0].Name == es[1].Name {
				t.Errorf("%s: %+v", object, es)
			}
			if word := v.hdr.catalogueChanges; word&swapping != 0 {
				t.Errorf("%s: catalogue_changes is %#x: readers wait for the end of the exchange", object, word)
			}
			for _, e := range w.Entries() {
				if got, err := w.Last(e.Handle); err != nil || got != want[e.Text] {
					t.Errorf("%s: %q shows %+v, %v, want %+v", object, e.Text, got, err, want[e.Text])
				}
			}
			noProblems(t, checkBytes(s.b))
		}
	}
}

// A damaged file may have BUILDING entries that replace one counter twice, that share a name, or whose name is LIVE
// elsewhere. They must not become LIVE, and must remove no counter.
func TestADamagedExchangeIsDropped(t *testing.T) {
	for name, c := range map[string]struct {
		of   [2]int // the counters that the entries of 1 and 2 replace; 0 replaces 6, which ended
		name [2]string
	}{
		"a counter is replaced twice":          {[2]int{4, 4}, [2]string{"y", "z"}},
		"a counter that ended, replaced twice": {[2]int{6, 4}, [2]string{"y", "z"}},
		"a name is LIVE":                       {[2]int{3, 5}, [2]string{"y", "cfalse-4"}},
		"one name":                             {[2]int{3, 4}, [2]string{"y", "y"}},
	} {
		t.Run(name, func(t *testing.T) {
			s, v := newHeap(t, 1, 0)
			v.ready()
			o := Options{Path: "heap", CoolDown: -1}.withDefaults()
			w, err := newWriter(o, v, nil)
			if err != nil {
				t.Fatal(err)
			}
			hs := addN(t, w, 7, false)
			if err := w.Remove(hs[6]); err != nil {
				t.Fatal(err)
			}
			for i, of := range []int{6, c.of[0], c.of[1]} {
				e := v.slot(hs[i].Index).entry()
				e.identity = identity(entBuilding, hs[i].Generation)
				e.freedAt = exchanging | int64(hs[of].Index)<<32 | int64(hs[of].Generation)
				clear(e.name[:])
				copy(e.name[:], []string{"x", c.name[0], c.name[1]}[i])
			}
			v.hdr.countersUsed = 3
			if v, err = attach(s); err != nil {
				t.Fatal(err)
			}
			if w, err = newWriter(o, v, nil); err != nil {
				t.Fatal(err)
			}
			for i := range 6 {
				mustAdd(t, w, Entry{Name: fmt.Sprint("next", i)})
			}
			if es := w.Entries(); len(es) != 9 || es[3].Handle != hs[3] || es[4].Handle != hs[4] || es[5].Handle != hs[5] {
				t.Errorf("%+v, want %v and 6 more", es, hs[3:6])
			}
			noProblems(t, checkBytes(s.b))
		})
	}
}
