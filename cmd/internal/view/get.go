package view

import "github.com/flowtally/flowtally/cmd/internal/format"

// ReadingJSON is the output of get -o json. Programs read it: fields are only added.
type ReadingJSON struct {
	Schema   int           `json:"schema"`
	Writer   writerJSON    `json:"writer"`
	Counters []CounterJSON `json:"counters"` // without any where --sum-by asks for sums

	Sums     []sumJSON     `json:"sums,omitempty"`
	Snapshot *snapshotJSON `json:"snapshot,omitempty"` // that the values of the sums are of
}

type writerJSON struct {
	State string `json:"state"`
	AgeNS int64  `json:"age_ns"`
}

// CounterJSON is one counter. A flow has packets and bytes, a completion counter
// completions and errors, and the other two are null; all four, and the age, are null
// where it was never sampled: absent is not zero.
type CounterJSON struct {
	Name      string  `json:"name"`
	Kind      string  `json:"kind"`
	Packets   *uint64 `json:"packets"`
	Bytes     *uint64 `json:"bytes"`
	AgeNS     *int64  `json:"age_ns"`
	Source    string  `json:"source"`
	ByteBasis string  `json:"byte_basis"`
	Valid     bool    `json:"valid"`

	Completions *uint64 `json:"completions"`
	Errors      *uint64 `json:"errors"`

	statusJSON
	Labels    map[string]string `json:"labels"`
	Direction *string           `json:"direction"` // ingress or egress; null: not a flow
	rateJSON

	// Device means that the value was read from the device's own words, with no poller in between;
	// the age is then 0, or the age of the writer's last sign of life.
	Device bool `json:"device,omitempty"`
}

// ToJSON returns what get prints as JSON.
func ToJSON(r *Reading) ReadingJSON {
	out := ReadingJSON{
		Schema:   1,
		Writer:   writerJSON{r.Writer.State, r.Writer.Age},
		Counters: make([]CounterJSON, 0, len(r.Counters)),
		Snapshot: toSnapshotJSON(r.Snapshot),
	}
	for _, c := range r.Counters {
		if c.Sum != nil {
			out.Sums = append(out.Sums, c.sumJSON(r))
		} else {
			out.Counters = append(out.Counters, c.counterJSON(r))
		}
	}
	return out
}

func (c *Counter) counterJSON(r *Reading) CounterJSON {
	j := CounterJSON{
		Name:       c.Name,
		Kind:       c.Kind,
		Source:     c.Source,
		ByteBasis:  c.ByteBasis,
		Valid:      c.Valid && c.Present(),
		Device:     c.FromDevice,
		Labels:     labelsJSON(c.Labels),
		Direction:  c.directionJSON(),
		rateJSON:   c.rates(),
		statusJSON: c.status(r.Zero),
	}
	if !c.Present() {
		return j
	}

	age := c.age(r)
	j.AgeNS = &age
	if c.Completion() {
		j.Completions, j.Errors = &c.Packets, &c.Bytes
	} else {
		j.Packets, j.Bytes = &c.Packets, &c.Bytes
	}
	return j
}

// Get returns what get prints as text: a table of flows and one of completion counters. It omits an empty one.
func Get(r *Reading) string {
	flows, completions := byKind(r.Counters)
	t := format.Table{Heading: []string{"NAME", "KIND", ">PACKETS", ">BYTES", ">AGE", "SOURCE", "BASIS", "NOTE"}}
	for _, c := range flows {
		t.Add(c.Name, format.OrDash(c.Kind), c.firstCell(), c.secondCell(), c.AgeCell(r), c.SourceCell(), format.OrDash(c.ByteBasis), c.Note())
	}
	below := format.Table{Heading: []string{"NAME", "KIND", ">COMPLETIONS", ">ERRORS", ">AGE", "SOURCE", "NOTE"}}
	for _, c := range completions {
		below.Add(c.Name, c.Kind, c.firstCell(), c.secondCell(), c.AgeCell(r), c.SourceCell(), c.Note())
	}
	return format.Stack(t, below)
}
