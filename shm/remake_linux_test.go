package shm

import (
	"errors"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// damages are the ways in which a mirror's file is damaged while its writer lives.
var damages = []struct {
	name string
	do   func(t *testing.T, path string)
	want error // of Intact
}{
	{"removed", func(t *testing.T, path string) {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}, os.ErrNotExist},
	{"replaced", func(t *testing.T, path string) {
		other := mirrorPath(t)
		w, err := Create(Options{Path: other, History: -1})
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(other, path); err != nil {
			t.Fatal(err)
		}
	}, ErrStale},
	{"cut short", func(t *testing.T, path string) {
		needFaultAddress(t)
		if err := os.Truncate(path, 4096); err != nil {
			t.Fatal(err)
		}
	}, ErrTruncated},
	{"emptied", func(t *testing.T, path string) {
		needFaultAddress(t)
		if err := os.Truncate(path, 0); err != nil {
			t.Fatal(err)
		}
	}, ErrTruncated},
	{"overwritten", func(t *testing.T, path string) {
		st, err := os.Stat(path)
		if err == nil {
			err = writeOver(path, make([]byte, st.Size()))
		}
		if err != nil {
			t.Fatal(err)
		}
	}, ErrFormat},
}

// Remake makes a damaged mirror anew from the entries that it is given: handles stay, readers by name
// follow, and the next cycle shows the totals.
func TestRemakeKeepsHandlesAndNames(t *testing.T) {
	for _, d := range damages {
		t.Run(d.name, func(t *testing.T) {
			path := mirrorPath(t)
			w := mustCreate(t, Options{Path: path, History: 8, CoolDown: -1})
			var entries []Entry
			for _, e := range []Entry{
				{Name: "web", Text: "tcp dport 443", Labels: map[string]string{"team": "edge"}, Source: "xdp eth0", ByteBasis: "l2", Width: 64,
					Valid: true, Continuity: Continuity{7, 100, 6400, 1, 0}},
				{Name: "gone"}, {Name: "dns", Width: 64}, {Name: "fast", Latency: true, Width: 64},
			} {
				e.Handle = mustAdd(t, w, e)
				if e.Name == "gone" {
					if err := w.Remove(e.Handle); err != nil {
						t.Fatal(err)
					}
					continue
				}
				entries = append(entries, e)
			}
			publish := func(n uint64) {
				hs := make([]Handle, 0, len(entries))
				for _, e := range entries {
					hs = append(hs, e.Handle)
				}
				publishAll(w, hs, func(h Handle) Value { return patterned(n + uint64(h.Index)) })
			}
			publish(1)
			if err := w.Intact(); err != nil {
				t.Fatal(err)
			}
			in, err := OpenPath(path, ReaderOptions{})
			if err != nil {
				t.Fatal(err)
			}
			defer in.Close()
			c, err := in.Counter("web")
			if err != nil {
				t.Fatal(err)
			}

			d.do(t, path)
			if err := w.Intact(); !errors.Is(err, d.want) {
				t.Fatalf("%v, want %v", err, d.want)
			}
			// A cycle and a control call on the damaged file return errors and raise no signal.
			_ = Guard(func() error { publish(2); return nil })
			w.AbandonCycle()
			if _, err := w.Add(Entry{Name: "meanwhile"}); err != nil && !errors.Is(err, ErrTruncated) {
				t.Fatal(err)
			}
			if err := w.Remake(entries); err != nil {
				t.Fatal(err)
			}
			if err := w.Intact(); err != nil {
				t.Fatal(err)
			}
			publish(3)

			r := mustOpen(t, path)
			got, err := r.Entries()
			if err != nil {
				t.Fatal(err)
			}
			for i := range got {
				got[i].AddedAt = 0
			}
			if diff := cmp.Diff(entries, got); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
			for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
				var v Value
				err := Guard(func() (err error) { v, err = c.Load(); return err })
				if err == nil && v == patterned(3) {
					break
				}
				if time.Now().After(deadline) {
					t.Fatalf("a reader by name: %+v, %v", v, err)
				}
			}
			if h := mustAdd(t, w, Entry{Name: "after"}); h.Index != 2 {
				t.Errorf("%+v, want the slot of a counter that is not in the new file", h)
			}
			checkFile(t, path)
		})
	}
}
