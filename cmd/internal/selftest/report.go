package selftest

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/flowtally/flowtally/cmd/internal/format"
)

// Results of a part.
const (
	Exact     = "exact"
	Differs   = "differs"
	NotTested = "not tested"
)

// Part is the result of one part of the test.
type Part struct {
	Name   string `json:"name"`
	Result string `json:"result"`
	Reason string `json:"reason"` // of a difference, or for no test
	Source string `json:"source"` // that counted
	// QueuePair is the type and the GID index of the queue pairs of an RDMA part, and empty for other parts.
	QueuePair string `json:"queue_pair"`
	// Rejected are the better backends that did not count, each with the reason: "rdma: …".
	Rejected []string `json:"rejected"`
	// Sent is the number of packets that were sent to be counted, Received of those that reached a socket of this host,
	// if one listens, and Counted the flow's. A queue pair has operations in their place.
	Sent     uint64  `json:"sent"`
	Received *uint64 `json:"received"`
	Counted  uint64  `json:"counted"`
	// Dropped is the number of sent frames that the kernel dropped behind the egress hook, which has counted them.
	Dropped uint64 `json:"dropped"`
	// SentBytes are layer 2 without FCS. A queue pair has none.
	SentBytes    uint64 `json:"sent_bytes"`
	CountedBytes uint64 `json:"counted_bytes"`
	// ByteBasis is the measured one: the difference between counted and sent bytes of each packet, and its meaning.
	ByteBasis string `json:"byte_basis"`
}

// Report is the result of a selftest.
type Report struct {
	Schema    int    `json:"schema"`
	Interface string `json:"interface"`
	Instance  string `json:"instance"` // whose flows counted
	Parts     []Part `json:"parts"`
	Exact     bool   `json:"exact"`    // no part differs
	Complete  bool   `json:"complete"` // every part was tested
}

func (r *Report) add(p Part) {
	if p.Rejected == nil {
		p.Rejected = []string{} // null in JSON is absent
	}
	r.Parts = append(r.Parts, p)
}

func (r *Report) finish() {
	r.Schema = 1
	r.Exact = true
	r.Complete = true
	for _, p := range r.Parts {
		r.Exact = r.Exact && p.Result != Differs
		r.Complete = r.Complete && p.Result != NotTested
	}
}

// Tested reports whether a part was tested.
func (r *Report) Tested() bool {
	return slices.ContainsFunc(r.Parts, func(p Part) bool { return p.Result != NotTested })
}

func notTested(name, reason string) Part { return Part{Name: name, Result: NotTested, Reason: reason} }

// judge compares the counts of a part. Callers must have waited until no more packets can arrive.
func (p *Part) judge() {
	p.judgePackets()
	if p.Counted == p.Sent && p.Counted != 0 && p.SentBytes != 0 {
		p.judgeBytes()
	}
}

// judgePackets compares the packets. If they differ, the number received by a socket shows whether packets were lost on
// the way or counted wrongly.
func (p *Part) judgePackets() {
	p.Result = Exact
	switch {
	case p.Received != nil && *p.Received != p.Sent && p.Counted == *p.Received:
		p.Result = Differs
		p.Reason = fmt.Sprintf("%+d on the way: a socket of this host has received as many as were counted", int64(*p.Received-p.Sent))
	case p.Counted != p.Sent && p.Received != nil:
		p.Result = Differs
		p.Reason = fmt.Sprintf("%+d packets; a socket of this host has received %d", int64(p.Counted-p.Sent), *p.Received)
	case p.Counted != p.Sent:
		p.Result = Differs
		p.Reason = fmt.Sprintf("%+d packets", int64(p.Counted-p.Sent))
	}
}

// judgeBytes measures the byte basis: by how many bytes the count of a packet differs from its length.
func (p *Part) judgeBytes() {
	more := int64(p.CountedBytes - p.SentBytes)
	each := more / int64(p.Counted)
	if each*int64(p.Counted) != more {
		p.Result = Differs
		p.Reason = fmt.Sprintf("%+d bytes, which is not the same for each packet", more)
		return
	}

	switch each {
	case 0:
		p.ByteBasis = "layer 2 without FCS"
	case 4:
		p.ByteBasis = "4 bytes more each: layer 2 with FCS"
	case -4:
		p.ByteBasis = "4 bytes less each: layer 2 without FCS and without the tag"
	case -14:
		p.ByteBasis = "14 bytes less each: layer 3"
	default:
		p.ByteBasis = fmt.Sprintf("%+d bytes each", each)
	}
}

// Print prints the report for a person.
func (r *Report) Print(w io.Writer) error {
	t := format.Table{Heading: []string{"PART", "RESULT", ">SENT", ">RECEIVED", ">COUNTED", ">SENT BYTES", ">COUNTED BYTES", "COUNTED BY", "NOTE"}}
	for _, p := range r.Parts {
		if p.Result == NotTested {
			t.Add(p.Name, p.Result, "-", "-", "-", "-", "-", "-", p.Reason)
			continue
		}
		received := "-"
		if p.Received != nil {
			received = format.Count(*p.Received)
		}
		t.Add(p.Name, p.Result, format.Count(p.Sent), received, format.Count(p.Counted), format.Count(p.SentBytes), format.Count(p.CountedBytes), p.Source, p.note())
	}
	_, err := io.WriteString(w, t.Render())
	return err
}

// note returns the remarks on a tested part.
func (p *Part) note() string {
	var notes []string
	if p.Reason != "" {
		notes = append(notes, p.Reason)
	}
	if p.QueuePair != "" {
		notes = append(notes, p.QueuePair)
	}
	if p.ByteBasis != "" {
		notes = append(notes, p.ByteBasis)
	}
	for _, r := range p.Rejected {
		notes = append(notes, "not "+r)
	}
	if p.Dropped > 0 {
		notes = append(notes, format.Plural(p.Dropped, "frame was", "frames were")+" dropped behind the egress hook")
	}
	return strings.Join(notes, "; ")
}
