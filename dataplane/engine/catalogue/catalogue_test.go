package catalogue

import (
	"path/filepath"
	"testing"

	"github.com/flowtally/flowtally/dataplane/engine/poll"
	"github.com/flowtally/flowtally/shm"
)

// After the last published value a device may count completions, or only errors. An exchanged entry shows that value if it is
// up to date, and none if the base is ahead of it.
func TestExchangedEntryShowsNoValueBelowItsBase(t *testing.T) {
	last := shm.Value{Packets: 5, Bytes: 1, SampledAt: 1}
	for name, c := range map[string]struct {
		base shm.Continuity
		want shm.Value
	}{
		"nothing is ahead":   {shm.Continuity{BasePackets: 5, BaseBytes: 1}, last},
		"packets are ahead":  {shm.Continuity{BasePackets: 6, BaseBytes: 1}, shm.Value{}},
		"errors are ahead":   {shm.Continuity{BasePackets: 5, BaseBytes: 2}, shm.Value{}},
		"an own count ahead": {shm.Continuity{BasePackets: 1<<64 - 7, BaseBytes: 1<<64 - 700}, last},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "mirror")
			w, err := shm.Create(shm.Options{Path: path})
			if err != nil {
				t.Fatal(err)
			}
			defer w.Close()
			h, err := w.Add(shm.Entry{Name: "a"})
			if err != nil {
				t.Fatal(err)
			}
			w.BeginCycle()
			w.PublishBlock(0, &shm.Block{last})
			w.EndCycle(1)
			m := New(Options{Path: path, Writer: w, Plan: poll.NewPlan(0)})
			m.Inherit()
			fresh, _, err := m.Entry(shm.Entry{Name: "a", Labels: map[string]string{"k": "v"}}, nil, func(old *Inherited) (shm.Continuity, error) {
				if old == nil || old.Handle != h {
					t.Errorf("inherits %+v, want %v", old, h)
				}
				return c.base, nil
			})
			if err != nil {
				t.Fatal(err)
			}
			if got, err := w.Last(fresh); err != nil || got != c.want {
				t.Errorf("the entry shows %+v, %v, want %+v", got, err, c.want)
			}
		})
	}
}
