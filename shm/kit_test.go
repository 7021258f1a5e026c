package shm

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/flowtally/flowtally/internal/lab/golden"
)

// kit is the conformance kit, which testdata/conformance/README.md describes.
const kit = "testdata/conformance"

// kitCase is a file of the kit: changes of a mirror, and the results of a reader.
type kitCase struct {
	About string    `json:"about"`
	Rules []string  `json:"rules"`
	Steps []kitStep `json:"steps"`
}

// kitStep changes the file, or asks the reader.
type kitStep struct {
	About  string          `json:"about,omitempty"`
	Write  []kitWrite      `json:"write,omitempty"`
	Length *int64          `json:"length,omitempty"`
	Ask    string          `json:"ask,omitempty"`
	Answer json.RawMessage `json:"answer,omitempty"`
	Or     json.RawMessage `json:"or,omitempty"`
}

type kitWrite struct {
	At  int64  `json:"at"`
	Hex string `json:"hex"`
}

// do changes the file f.
func (s kitStep) do(f *os.File) error {
	if s.Length != nil {
		if err := f.Truncate(*s.Length); err != nil {
			return err
		}
	}
	for _, w := range s.Write {
		b, err := hex.DecodeString(w.Hex)
		if err != nil {
			return err
		}
		if _, err := f.WriteAt(b, w.At); err != nil {
			return err
		}
	}
	return nil
}

// kitReader replies to the questions of the kit with the Go reader.
type kitReader struct {
	path    string
	r       *Reader
	found   map[string]HandleCounter
	history *Cursor
}

// kitError is an error in the words of the kit.
func kitError(err error) any {
	name := err.Error()
	for _, e := range []struct {
		is   error
		name string
	}{
		{ErrNoLive, "no-live"}, {ErrStale, "stale"}, {ErrGone, "gone"}, {ErrNotFound, "gone"}, {ErrBusy, "busy"},
		{ErrNotReady, "refused"}, {ErrTruncated, "refused"}, {ErrFormat, "refused"}, {errNotOpen, "not-open"},
	} {
		if errors.Is(err, e.is) {
			name = e.name
			break
		}
	}
	return map[string]string{"error": name}
}

var errNotOpen = errors.New("the file is not open")

type kitValue struct {
	Packets   uint64 `json:"packets"`
	Bytes     uint64 `json:"bytes"`
	SampledAt int64  `json:"sampled_at"`
}

func (k *kitReader) ask(question string) any {
	verb, name, _ := strings.Cut(question, " ")
	answer, err := k.answer(verb, name)
	if err != nil {
		return kitError(err)
	}
	return answer
}

func (k *kitReader) answer(verb, name string) (any, error) {
	if verb == "open" {
		r, err := OpenReader(k.path, ReaderOptions{AnyOwner: true})
		if err != nil {
			return nil, err
		}
		k.r, k.found = r, make(map[string]HandleCounter)
		if k.history, err = r.History(); err != nil {
			return nil, err
		}
		k.history.Rewind()
		r.live = kitMap()
		return map[string]bool{"ok": true}, nil
	}
	if k.r == nil {
		return nil, errNotOpen
	}
	switch verb {
	case "status":
		s := k.r.Status()
		return map[string]any{
			"state": s.State.String(), "generation": s.Generation, "takeovers": s.Takeovers, "cycle": s.Cycle,
			"counters_used": s.CountersUsed, "records_used": s.RecordsUsed,
		}, nil
	case "find":
		found, err := k.r.Find(name) // a scan of the catalogue, as the specification's
		if err != nil {
			return nil, err
		}
		if len(found) == 0 {
			return nil, ErrNotFound
		}
		h := found[0].Handle
		c, err := k.r.Counter(h)
		if err != nil {
			return nil, err
		}
		k.found[name] = c
		return map[string]uint32{"index": h.Index, "generation": h.Generation}, nil
	case "load":
		c, ok := k.found[name]
		if !ok {
			return nil, errNotOpen
		}
		v, err := c.Load()
		k.found[name] = c
		if err != nil {
			return nil, err
		}
		return kitValue(v), nil
	case "live":
		c, ok := k.found[name]
		if !ok {
			return nil, errNotOpen
		}
		l, err := k.r.Live(c.Handle())
		if err != nil {
			return nil, err
		}
		packets, bytes, err := l.Load()
		return map[string]uint64{"packets": packets, "bytes": bytes}, err
	case "list":
		return k.list()
	case "snapshot":
		return k.snapshot()
	case "history":
		return k.records()
	}
	return nil, fmt.Errorf("question %q is none of the kit's", verb)
}

// kitMap returns the map in which the kernel of the kit counts, as the kit's README.md describes it.
func kitMap() *liveFile {
	const cpus, counters = 2, 4
	f := &liveFile{id: 7, counters: counters, stride: 2 * counters, epoch: new(uint64)}
	*f.epoch = 3
	for cpu := range uint64(cpus) {
		for slot := range uint64(counters) {
			packets := 100*(cpu+1) + slot
			f.words = append(f.words, packets, 64*packets<<8+packets)
		}
	}
	return f
}

// plain replies to "load NAME" by the plain form (R7), where ask uses the quick form (R8).
func (k *kitReader) plain(name string) any {
	c, ok := k.found[name]
	if !ok {
		return kitError(errNotOpen)
	}
	fresh, err := k.r.Counter(c.Handle())
	if err != nil {
		return kitError(err)
	}
	v, err := fresh.Load()
	if err != nil {
		return kitError(err)
	}
	return kitValue(v)
}

func (k *kitReader) list() (any, error) {
	entries, err := k.r.Entries()
	if err != nil {
		return nil, err
	}
	out := []any{}
	for _, e := range entries {
		labels := e.Labels
		if labels == nil {
			labels = map[string]string{}
		}
		out = append(out, map[string]any{
			"index": e.Handle.Index, "generation": e.Handle.Generation, "name": e.Name, "kind": e.Kind, "unit": cmp.Or(e.Unit, "packets"),
			"text": e.Text, "labels": labels, "source": e.Source, "byte_basis": e.ByteBasis,
			"valid": e.Valid, "stale": e.Stale, "ambiguous": e.Ambiguous, "discontinuities": e.Continuity.Discontinuities,
		})
	}
	return out, nil
}

func (k *kitReader) snapshot() (any, error) {
	var s Snapshot
	if err := k.r.Snapshot(&s); err != nil {
		return nil, err
	}
	entries, err := k.r.Entries()
	if err != nil {
		return nil, err
	}
	values := make(map[string]any)
	for _, e := range entries {
		v, err := s.Value(e.Handle)
		if err != nil {
			values[e.Name] = kitError(err)
			continue
		}
		values[e.Name] = kitValue(v)
	}
	return map[string]any{
		"min_cycle": s.MinCycle, "max_cycle": s.MaxCycle, "oldest": s.Oldest, "newest": s.Newest, "values": values,
	}, nil
}

func (k *kitReader) records() (any, error) {
	recs := make([]Record, 64)
	n, _, err := k.history.Next(recs)
	if err != nil {
		return nil, err
	}
	out := []any{}
	for _, r := range recs[:n] {
		out = append(out, map[string]any{
			"position": r.Position, "index": r.Handle.Index, "generation": r.Handle.Generation,
			"value": kitValue(r.Value), "cycle": r.Cycle,
		})
	}
	return map[string]any{"lost": k.history.Lost(), "records": out}, nil
}

// sameJSON compares two replies as JSON, numbers by their digits.
func sameJSON(t *testing.T, got, want []byte) string {
	t.Helper()
	var g, w any
	for _, p := range []struct {
		b  []byte
		to *any
	}{{got, &g}, {want, &w}} {
		d := json.NewDecoder(bytes.NewReader(p.b))
		d.UseNumber()
		if err := d.Decode(p.to); err != nil {
			t.Fatalf("%s: %v", p.b, err)
		}
	}
	return gocmp.Diff(w, g)
}

// goldenFile puts the golden file at path.
func goldenFile(t *testing.T, path string) {
	t.Helper()
	if err := os.WriteFile(path, golden.Unpack(t, goldenPath), 0o644); err != nil {
		t.Fatal(err)
	}
}

// The Go reader must return the results of the conformance kit. -update writes the kit first.
func TestReadersAnswerTheConformanceKit(t *testing.T) {
	if *update {
		writeKit(t)
	}
	files, err := filepath.Glob(kit + "/*.json")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".json"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var c kitCase
			if err := json.Unmarshal(text, &c); err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(t.TempDir(), "kit.mirror")
			goldenFile(t, path)
			f, err := os.OpenFile(path, os.O_RDWR, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			k := &kitReader{path: path}
			for i, s := range c.Steps {
				if err := s.do(f); err != nil {
					t.Fatal(err)
				}
				if s.Ask == "" {
					continue
				}
				got, err := json.Marshal(k.ask(s.Ask))
				if err != nil {
					t.Fatal(err)
				}
				if s.Or != nil && sameJSON(t, got, s.Or) == "" {
					continue
				}
				if d := sameJSON(t, got, s.Answer); d != "" {
					t.Errorf("step %d, %s (%s): -want +got\n%s", i, s.Ask, s.About, d)
				}
			}
		})
	}
}
