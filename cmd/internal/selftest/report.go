package selftest

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/flowtally/flowtally/cmd/internal/format"
	"github.com/flowtally/flowtally/dataplane"
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
	// if one listens, and Counted the flow's. A queue pair has operations in their place. Of the frames of a function
	// Received are those that passed the interface in either direction, and Counted those of two flows.
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

	tagged   uint64 // counted frames that had a VLAN tag
	untagged bool   // no frame of the part ever has one
	refused  bool   // what counts on the interface takes no such flow
}

// Report is the result of a selftest.
type Report struct {
	Schema    int    `json:"schema"`
	Interface string `json:"interface"`
	Instance  string `json:"instance"` // whose flows counted
	Parts     []Part `json:"parts"`
	Exact     bool   `json:"exact"`    // no part differs
	Complete  bool   `json:"complete"` // every part was tested
	// ByteBasis is the word for rdma.byte_basis, measured on the frames that RDMA devices counted. It is "unknown" if the
	// measurement fits no word, or fits another one for each direction, and empty if no device counted frames.
	ByteBasis dataplane.ByteBasis `json:"byte_basis"`
	// Switchdev is the verdict on counting in switchdev mode, and null on an interface of another NIC.
	Switchdev *Switchdev `json:"switchdev"`
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
	r.ByteBasis = r.rdmaBasis()
	if r.Switchdev != nil {
		r.Switchdev.judge(r.Parts)
	}
}

// rdmaParts returns the parts with frames of both kinds, without and with a tag, whose bytes RDMA devices counted, by
// direction: egress, ingress. Echo replies and the frames of a function have no tag, and do not tell the basis.
func (r *Report) rdmaParts() map[string][]Part {
	parts := make(map[string][]Part)
	for _, p := range r.Parts {
		if !strings.HasPrefix(p.Source, "rdma:") || p.SentBytes == 0 || p.Counted != p.Sent || p.untagged {
			continue
		}
		direction, _, _ := strings.Cut(strings.ReplaceAll(p.Name, "-", " "), " ")
		parts[direction] = append(parts[direction], p)
	}
	return parts
}

// rdmaBasis measures the basis over the parts that RDMA devices counted. A card may treat received frames in another
// way than sent ones.
func (r *Report) rdmaBasis() dataplane.ByteBasis {
	var found dataplane.ByteBasis
	for _, of := range r.rdmaParts() {
		basis := basisOf(of...)
		if found != "" && basis != found {
			return dataplane.BasisUnknown
		}
		found = basis
	}
	return found
}

// basisOf returns the basis that explains the counted bytes of each part, or BasisUnknown. Frames without and with a tag
// must be among the counted ones: a tag of four bytes that is left out looks like the FCS that is added.
func basisOf(parts ...Part) dataplane.ByteBasis {
	var frames, tagged uint64
	for _, p := range parts {
		frames += p.Counted
		tagged += p.tagged
	}
	if tagged == 0 || tagged == frames {
		return dataplane.BasisUnknown
	}
	for _, basis := range dataplane.ByteBases() {
		if !slices.ContainsFunc(parts, func(p Part) bool { return p.CountedBytes != p.bytesBy(basis) }) {
			return basis
		}
	}
	return dataplane.BasisUnknown
}

// bytesBy returns the bytes that a device with this basis counts for the counted frames, or 0 if nobody knows.
func (p *Part) bytesBy(b dataplane.ByteBasis) uint64 {
	switch b {
	case dataplane.BasisL2:
		return p.SentBytes
	case dataplane.BasisL2Untagged:
		return p.SentBytes - tagLen*p.tagged
	case dataplane.BasisL2FCS:
		return p.SentBytes + fcsLen*p.Counted
	case dataplane.BasisL2FCSUntagged:
		return p.SentBytes + fcsLen*p.Counted - tagLen*p.tagged
	case dataplane.BasisL3:
		return p.SentBytes - ethernetHead*p.Counted - tagLen*p.tagged
	}
	return 0
}

// basisWords says a basis in words.
func basisWords(b dataplane.ByteBasis) string {
	switch b {
	case dataplane.BasisL2:
		return "layer 2 with the VLAN tag and without FCS, as XDP counts"
	case dataplane.BasisL2Untagged:
		return "layer 2 without the VLAN tag and without FCS"
	case dataplane.BasisL2FCS:
		return "layer 2 with the VLAN tag and with FCS"
	case dataplane.BasisL2FCSUntagged:
		return "layer 2 without the VLAN tag and with FCS"
	case dataplane.BasisL3:
		return "layer 3"
	}
	return "it fits no known basis, or differs between sent and received frames"
}

// Lengths of parts of a frame, in bytes.
const (
	tagLen       = 4 // of a VLAN tag
	fcsLen       = 4
	ethernetHead = 14
)

// Tested reports whether a part was tested.
func (r *Report) Tested() bool {
	return slices.ContainsFunc(r.Parts, func(p Part) bool { return p.Result != NotTested })
}

func notTested(name, reason string) Part { return Part{Name: name, Result: NotTested, Reason: reason} }

// notAdded is the part whose flow was not added.
func notAdded(name string, err error) Part {
	p := notTested(name, err.Error())
	p.refused = errors.Is(err, dataplane.ErrUnplaced)
	return p
}

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
	if basis := basisOf(*p); basis != dataplane.BasisUnknown { // the part has frames without and with a tag
		p.ByteBasis = basisWords(basis)
		return
	}
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
	text := t.Render()
	if r.ByteBasis != "" {
		text += fmt.Sprintf("\nThe RDMA device counts bytes of %s: rdma: {byte_basis: %s}\n", basisWords(r.ByteBasis), r.ByteBasis)
		if measured := r.rdmaParts(); len(measured) == 1 {
			for direction := range measured {
				text += fmt.Sprintf("It was measured on %s frames alone: the card may count the others in another way\n", direction)
			}
		}
	}
	if r.Switchdev != nil {
		text += "\n" + r.Switchdev.text(r.Interface)
	}
	_, err := io.WriteString(w, text)
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
