package selftest

import (
	"fmt"
	"strings"

	"github.com/flowtally/flowtally/cmd/internal/format"
)

// Verdicts of a criterion.
const (
	Holds = "holds"
	Fails = "fails"
	// LeftToXDP says that the device takes no flow of the criterion: an instance would count its frames by XDP.
	LeftToXDP = "left to XDP"
)

// Verdicts of a selftest on a NIC in switchdev mode.
const (
	Allowed    = "allowed"
	NotAllowed = "not allowed"
	NotDecided = "not decided"
)

// Switchdev says whether the result of a selftest lets an instance count on an interface of a NIC in switchdev mode.
type Switchdev struct {
	Device   string      `json:"device"`   // RDMA device that counted
	Reason   string      `json:"reason"`   // why an instance does not count with it today
	Function string      `json:"function"` // interface that sent the frames of a function, or ""
	Criteria []Criterion `json:"criteria"`
	Verdict  string      `json:"verdict"` // "allowed" if each criterion holds or is left to XDP, "not allowed" if one fails, else "not decided"
	Because  string      `json:"because"` // the criteria that fail or were not tested, with the reasons
}

// Criterion is one condition for counting in switchdev mode, judged by parts of the test.
type Criterion struct {
	Name     string   `json:"name"`
	Parts    []string `json:"parts"`    // that test it
	Sent     uint64   `json:"sent"`     // frames
	Received *uint64  `json:"received"` // frames that reached a socket of this host on the interface, if one listened
	Counted  uint64   `json:"counted"`
	Verdict  string   `json:"verdict"` // "holds", "fails", "left to XDP" or "not tested"
	Reason   string   `json:"reason"`  // of another verdict than "holds"
}

// Names of the parts that send frames on another function of the NIC.
const (
	toHost   = "function to host"
	pastHost = "function past host"
)

// Names of the criteria. An interface passes if its device counts all that the host sends and receives there, and nothing
// else: neither what the e-switch gives to another interface nor what it keeps from the host.
const (
	sentByHost     = "sent by the host"
	receivedByHost = "received by the host"
	ofFunctionTo   = "of a function, to the host"
	ofFunctionPast = "of a function, past the host"
)

// tests reports whether a part tests the criterion. On a representor the host receives what its function sends.
func (c *Criterion) tests(p Part) bool {
	switch c.Name {
	case sentByHost:
		return strings.HasPrefix(p.Name, "egress")
	case receivedByHost:
		return strings.HasPrefix(p.Name, "ingress") || p.Name == toHost && p.Received != nil && *p.Received > 0
	case ofFunctionTo:
		return p.Name == toHost
	}
	return p.Name == pastHost
}

// judge compares a criterion with the parts of the report that test it. One tested part is enough: a device may refuse the
// flow of another one, for example by a tag.
func (c *Criterion) judge(device string, parts []Part) {
	c.Parts = []string{} // null in JSON is absent
	c.Verdict = NotTested
	c.Reason = "the test has ended before"
	var untested, refused, wrong []string
	for _, p := range parts {
		switch {
		case !c.tests(p):
			continue
		case p.Result == NotTested && p.refused:
			refused = append(refused, p.Reason)
			continue
		case p.Result == NotTested:
			untested = append(untested, p.Reason)
			continue
		case !strings.HasPrefix(p.Source, "rdma:"+device+"/"):
			untested = append(untested, fmt.Sprintf("%s has counted, not %s", p.Source, device))
			continue
		case p.Result == Differs:
			wrong = append(wrong, p.Name+": "+p.Reason)
		}
		c.add(p)
	}

	switch {
	case len(wrong) > 0:
		c.Verdict, c.Reason = Fails, strings.Join(wrong, "; ")
	case len(c.Parts) > 0:
		c.Verdict, c.Reason = Holds, ""
	case len(refused) > 0:
		c.Verdict, c.Reason = LeftToXDP, refused[0]
	case len(untested) > 0:
		c.Reason = untested[0]
	}
}

// add adds the numbers of a part.
func (c *Criterion) add(p Part) {
	c.Parts = append(c.Parts, p.Name)
	c.Sent += p.Sent
	c.Counted += p.Counted
	if p.Received == nil {
		return
	}
	if c.Received == nil {
		c.Received = new(uint64)
	}
	*c.Received += *p.Received
}

// judge fills in the criteria and the verdict.
func (s *Switchdev) judge(parts []Part) {
	s.Criteria = []Criterion{{Name: sentByHost}, {Name: receivedByHost}, {Name: ofFunctionTo}, {Name: ofFunctionPast}}
	for i := range s.Criteria {
		s.Criteria[i].judge(s.Device, parts)
	}
	switch {
	case len(s.with(Fails)) > 0:
		s.Verdict = NotAllowed
	case len(s.with(NotTested)) > 0:
		s.Verdict = NotDecided
	case s.Criteria[0].Verdict == LeftToXDP && s.Criteria[1].Verdict == LeftToXDP: // it has counted nothing
		s.Verdict = NotDecided
	default:
		s.Verdict = Allowed
		return
	}

	var because []string
	for _, c := range append(append(s.with(Fails), s.with(NotTested)...), s.with(LeftToXDP)...) {
		because = append(because, fmt.Sprintf("%q %s: %s", c.Name, predicate(c.Verdict), c.Reason))
	}
	s.Because = strings.Join(because, "; ")
}

// with returns the criteria with a verdict.
func (s *Switchdev) with(verdict string) (list []Criterion) {
	for _, c := range s.Criteria {
		if c.Verdict == verdict {
			list = append(list, c)
		}
	}
	return list
}

// predicate returns the verdict on a criterion as the predicate of a sentence.
func predicate(verdict string) string {
	switch verdict {
	case NotTested:
		return "was not tested"
	case LeftToXDP:
		return "is left to XDP"
	}
	return verdict
}

// text returns the criteria and the verdict for a person, and what to do with them.
func (s *Switchdev) text(ifname string) string {
	t := format.Table{Heading: []string{"SWITCHDEV: FRAMES", ">SENT", ">RECEIVED", ">COUNTED", "VERDICT"}}
	for _, c := range s.Criteria {
		if len(c.Parts) == 0 {
			t.Add(c.Name, "-", "-", "-", c.Verdict)
			continue
		}
		received := "-"
		if c.Received != nil {
			received = format.Count(*c.Received)
		}
		t.Add(c.Name, format.Count(c.Sent), received, format.Count(c.Counted), c.Verdict)
	}

	var b strings.Builder
	b.WriteString(t.Render())
	because := format.Printable(s.Because)
	means := "a release may count on such an interface, by a NIC with this driver and firmware"
	switch s.Verdict {
	case Allowed:
		because = fmt.Sprintf("on %s, %s counts what the host sends and receives, and nothing else", ifname, s.Device)
		for _, c := range s.with(LeftToXDP) {
			because += fmt.Sprintf("; %q %s", c.Name, predicate(c.Verdict))
		}
	case NotAllowed:
		means = fmt.Sprintf("%s counts wrongly on %s, and has to stay refused there", s.Device, ifname)
	default:
		means = "no criterion fails, but each has to be tested before a release may count on such an interface"
	}
	fmt.Fprintf(&b, "\nSwitchdev: %s by this result: %s.\n", s.Verdict, because)
	fmt.Fprintf(&b, "It means: %s. This build goes on to refuse %s there: XDP counts.\n", means, s.Device)
	fmt.Fprintf(&b, "Send to the project, with what docs/rdma.md lists: \"switchdev, %s on %s (%s): %s by selftest\"\n", s.Device, ifname, s.Reason, s.Verdict)
	return b.String()
}
