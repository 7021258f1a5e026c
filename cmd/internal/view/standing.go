package cli

import (
	"errors"
	"fmt"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/shm"
)

// standingJSON is what a program must know of a counter before it uses the total. A total is exact
// where the counter has no discontinuity and is neither stale nor ambiguous. standingJSON is part of
// the JSON of get, watch and flows. A field that is not known is null, which is neither zero nor false.
type standingJSON struct {
	Unit            *string `json:"unit"`       // of the first value
	Generation      *uint32 `json:"generation"` // tells counters apart that have one name in turn
	SampledAt       *string `json:"sampled_at"` // RFC 3339
	Discontinuities *uint64 `json:"discontinuities"`
	Stale           *bool   `json:"stale"`
	Ambiguous       *bool   `json:"ambiguous"`
	Gone            *bool   `json:"gone"` // the counter was removed
}

// standing returns the unit of a counter, its generation, the time of its last sample and whether its total
// is exact. zero is the time of the wall clock at 0 of CLOCK_MONOTONIC, taken when the counter was read.
func (c counterView) standing(zero time.Time) standingJSON {
	s := standingJSON{
		Unit: &c.Unit, Generation: &c.Generation, Discontinuities: &c.Discontinuities,
		Stale: &c.Stale, Ambiguous: &c.Ambiguous, Gone: &c.Gone,
	}
	if c.present() {
		at := wallClock(zero, c.SampledAt)
		s.SampledAt = &at
	}
	return s
}

// monotonicZero is the time of the wall clock at 0 of CLOCK_MONOTONIC.
func monotonicZero() time.Time { return time.Now().Add(-time.Duration(shm.Now())) }

// wallClock is the time of at, in ns of CLOCK_MONOTONIC, on the wall clock.
func wallClock(zero time.Time, at int64) string {
	return zero.Add(time.Duration(at)).UTC().Format(time.RFC3339Nano)
}

// labelsJSON is labels as JSON shows them: without any it is {}, not null.
func labelsJSON(labels map[string]string) map[string]string {
	if labels == nil {
		return map[string]string{}
	}
	return labels
}

// standings holds the standing of each counter of a mirror, by name.
type standings struct {
	known bool // the mirror could be read: a counter that is not in by is gone
	by    map[string]standingJSON
}

// of returns the standing of the counter with that name. Gone is set if the mirror was read and has no such
// counter.
func (s standings) of(name string) standingJSON {
	standing, found := s.by[name]
	if s.known && !found {
		standing.Gone = &s.known
	}
	return standing
}

// join gives each flow the standing of its counter.
func (s standings) join(flows []placementJSON) []placementJSON {
	for i := range flows {
		flows[i].standingJSON = s.of(flows[i].Name)
	}
	return flows
}

// readStandings reads the counters of those names in the mirror at path; all where there are none.
func readStandings(path string, names ...string) (standings, error) {
	m, err := openMirror(readerFlag{instanceFlag: instanceFlag{Mirror: path}})
	if err != nil {
		return standings{}, err
	}
	defer m.close()
	r, err := m.look(names)
	if err != nil && !errors.Is(err, shm.ErrNotFound) {
		return standings{}, err
	}
	s := standings{known: true, by: make(map[string]standingJSON, len(r.Counters))}
	for _, c := range r.Counters {
		s.by[c.Name] = c.standing(r.Zero)
	}
	return s, nil
}

// standings returns how the counters of a running instance stand, for its JSON. Where the
// mirror cannot be read, it prints the reason on stderr, and these fields are null.
func (f outputFlag) standings(env *Env, svc dataplane.Service, names ...string) (s standings) {
	if !f.json() {
		return s
	}
	info, err := svc.Info(env.Context)
	if err == nil {
		s, err = readStandings(info.Mirror, names...)
	}
	if err != nil {
		fmt.Fprintf(env.Stderr, "flowtally: the fields of the flows that the mirror holds are null: %v\n", err)
	}
	return s
}
