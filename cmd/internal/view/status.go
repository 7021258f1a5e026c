package view

import (
	"time"

	"github.com/flowtally/flowtally/shm"
)

// statusJSON is the state of a counter that a program needs before it uses the total. A total is
// exact if the counter has no discontinuity and is neither stale nor ambiguous. statusJSON is part
// of the JSON of get, watch and flows. An unknown field is null, which is neither zero nor false.
type statusJSON struct {
	Unit            *string `json:"unit"`       // of the first value
	Generation      *uint32 `json:"generation"` // tells counters apart that have one name in turn
	SampledAt       *string `json:"sampled_at"` // RFC 3339
	Discontinuities *uint64 `json:"discontinuities"`
	Stale           *bool   `json:"stale"`
	Ambiguous       *bool   `json:"ambiguous"`
	Gone            *bool   `json:"gone"` // the counter was removed
}

// status returns the fields that say whether a counter's total is exact. zero is the wall-clock time at 0 of
// CLOCK_MONOTONIC. Callers must compute it when they read the counter, because the two clocks drift.
func (c *Counter) status(zero time.Time) statusJSON {
	s := statusJSON{
		Unit:            &c.Unit,
		Generation:      &c.Generation,
		Discontinuities: &c.Discontinuities,
		Stale:           &c.Stale,
		Ambiguous:       &c.Ambiguous,
		Gone:            &c.Gone,
	}
	if c.Present() {
		at := wallClock(zero, c.SampledAt)
		s.SampledAt = &at
	}
	return s
}

// rateJSON is the rate of a counter since an earlier look at it; null: not known, as for the first look.
type rateJSON struct {
	PacketsPerSecond     *float64 `json:"packets_per_second"`
	BytesPerSecond       *float64 `json:"bytes_per_second"`
	CompletionsPerSecond *float64 `json:"completions_per_second"`
	ErrorsPerSecond      *float64 `json:"errors_per_second"`
}

// rates returns the rate of a counter, if it has one.
func (c *Counter) rates() (j rateJSON) {
	switch {
	case !c.HasRate:
	case c.Completion():
		j.CompletionsPerSecond, j.ErrorsPerSecond = &c.PacketsPerSec, &c.BytesPerSec
	default:
		j.PacketsPerSecond = &c.PacketsPerSec
		if c.hasSecond() {
			j.BytesPerSecond = &c.BytesPerSec
		}
	}
	return j
}

// directionJSON returns the direction, or nil if the counter is not of a flow.
func (c *Counter) directionJSON() *string {
	if c.Direction == "" {
		return nil
	}
	return &c.Direction
}

// MonotonicZero returns the wall-clock time at 0 of CLOCK_MONOTONIC.
func MonotonicZero() time.Time { return time.Now().Add(-time.Duration(shm.Now())) }

// wallClock converts a time in ns of CLOCK_MONOTONIC to RFC 3339.
func wallClock(zero time.Time, at int64) string {
	return zero.Add(time.Duration(at)).UTC().Format(time.RFC3339Nano)
}

// labelsJSON returns labels, never nil: JSON must have {} and not null.
func labelsJSON(labels map[string]string) map[string]string {
	if labels == nil {
		return map[string]string{}
	}
	return labels
}

// Statuses has the status of each counter of a mirror. The zero value is for an unreadable mirror.
type Statuses struct {
	known        bool // the mirror was readable, so a counter without a status is gone
	statusByName map[string]statusJSON
}

// StatusesOf returns the status of each counter of a reading.
func StatusesOf(r *Reading) Statuses {
	s := Statuses{known: true, statusByName: make(map[string]statusJSON, len(r.Counters))}
	for _, c := range r.Counters {
		s.statusByName[c.Name] = c.status(r.Zero)
	}
	return s
}

// join fills in each flow's status.
func (s Statuses) join(flows []placementJSON) []placementJSON {
	for i := range flows {
		flows[i].statusJSON = s.of(flows[i].Name)
	}
	return flows
}

// of returns the status of a counter. It is gone if the mirror was readable and does not have it.
func (s Statuses) of(name string) statusJSON {
	status, found := s.statusByName[name]
	if s.known && !found {
		status.Gone = &s.known
	}
	return status
}
