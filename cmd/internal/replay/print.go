package replay

import (
	"fmt"
	"io"

	"github.com/flowtally/flowtally/cmd/internal/format"
	"github.com/flowtally/flowtally/cmd/internal/view"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/shm"
)

// ReportJSON is the output of replay -o json. Fields are only added. A counter has the fields of a counter of get.
type ReportJSON struct {
	Schema    int                `json:"schema"`
	By        string             `json:"by"`     // xdp or linear
	NoBPF     *string            `json:"no_bpf"` // the reason for linear
	Records   countJSON          `json:"records"`
	Unmatched countJSON          `json:"unmatched"`
	Cut       uint64             `json:"cut"`
	Linear    uint64             `json:"linear"` // records of a length that the kernel does not run
	Complete  bool               `json:"complete"`
	Error     *string            `json:"error"` // the reason why the capture was not read to its end
	Counters  []view.CounterJSON `json:"counters"`
}

type countJSON struct {
	Packets uint64 `json:"packets"`
	Bytes   uint64 `json:"bytes"`
}

func textOf(err error) *string {
	if err == nil {
		return nil
	}
	s := err.Error()
	return &s
}

// by names the matcher that decided.
func (r *Report) by() string {
	if r.NoBPF != nil {
		return "linear"
	}
	return "xdp"
}

// PrintJSON prints the report as JSON. flows must be those of the replay.
func (r *Report) PrintJSON(w io.Writer, flows []flow.Flow) error {
	reading := &view.Reading{Now: shm.Now(), Zero: view.MonotonicZero()}
	for i, f := range flows {
		reading.Counters = append(reading.Counters, view.Counter{
			Index:     uint32(i),
			Name:      f.Name,
			Kind:      "flow",
			Unit:      "packets",
			Labels:    f.Labels,
			Direction: f.Direction.String(),
			Source:    "replay " + r.by(),
			ByteBasis: "l2",
			Valid:     true,
			Packets:   r.Counts[i].Packets,
			Bytes:     r.Counts[i].Bytes,
			SampledAt: reading.Now,
		})
	}
	return format.JSON(w, ReportJSON{
		Schema:    1,
		By:        r.by(),
		NoBPF:     textOf(r.NoBPF),
		Records:   countJSON(r.Records),
		Unmatched: countJSON(r.Unmatched),
		Cut:       r.Cut,
		Linear:    r.Linear,
		Complete:  r.Err == nil,
		Error:     textOf(r.Err),
		Counters:  view.ToJSON(reading).Counters,
	})
}

// Print prints the report as a table. flows must be those of the replay. The last row has the unmatched packets.
func (r *Report) Print(w io.Writer, flows []flow.Flow) error {
	t := format.Table{Heading: []string{"NAME", ">PRIO", "ACTION", ">PACKETS", ">BYTES", "MATCH"}}
	for i, f := range flows {
		t.Add(f.Name, fmt.Sprint(f.Priority), f.Action.String(), format.Count(r.Counts[i].Packets), format.Count(r.Counts[i].Bytes), f.Match.String())
	}
	t.Add("-", "", "", format.Count(r.Unmatched.Packets), format.Count(r.Unmatched.Bytes), "no flow")
	_, err := io.WriteString(w, t.Render())
	return err
}

// Notes returns what the user must know about how the counts came about.
func (r *Report) Notes() (notes []string) {
	add := func(n uint64, one, many, rest string) {
		if n > 0 {
			notes = append(notes, format.Plural(n, one, many)+" "+rest)
		}
	}
	if r.NoBPF != nil {
		notes = append(notes, fmt.Sprintf("the linear matcher has counted, not the classifier, because this process cannot load BPF: %v", r.NoBPF))
	}
	add(r.Cut, "record is", "records are", "cut: the whole frame counts in bytes, and a header behind the cut counts as incomplete")
	add(r.Linear, "record has", "records have", "a length that the kernel does not run a program over: the linear matcher has counted it")
	return notes
}
