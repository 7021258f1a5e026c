package engine

import (
	"slices"

	"github.com/flowtally/flowtally/dataplane/flow"
)

// relate notes who wins over whom between fresh flows and those that are there.
func relate(there, fresh []*counted) {
	meetings{rank}.between(fresh, there, keys)
	meetings{rank}.among(fresh, keys)
}

// rank notes which of two flows wins, if a packet can match both.
func rank(a, b *counted) {
	switch {
	case !overlap(&a.Flow, &b.Flow):
	case byPrecedence(a, b) < 0:
		b.above = append(b.above, a)
	default:
		a.above = append(a.above, b)
	}
}

// unrelate forgets flows that are gone.
func unrelate(there []*counted, gone map[*counted]bool) {
	for _, c := range there {
		c.above = slices.DeleteFunc(c.above, func(o *counted) bool { return gone[o] })
	}
}

// key is something that a packet has once, and that a flow may name: of two flows that name two
// different values none can overlap the other. "" is for flows that leave it open.
type key func(*flow.Flow) string

// keys tell most flows of a large set apart, which looking at every two of them (16384: 134 million)
// would not do in the time that a control call has.
var keys = []key{destinationAddress, destinationPort, sourceAddress, sourcePort, networkInterface}

func networkInterface(f *flow.Flow) string { return f.Interface }

func destinationAddress(f *flow.Flow) string {
	switch m := &f.Match; {
	case m.IPv4 != nil:
		return address(m.IPv4.Dst.Addr[:], m.IPv4.Dst.Mask[:])
	case m.IPv6 != nil:
		return address(m.IPv6.Dst.Addr[:], m.IPv6.Dst.Mask[:])
	}
	return ""
}

func sourceAddress(f *flow.Flow) string {
	switch m := &f.Match; {
	case m.IPv4 != nil:
		return address(m.IPv4.Src.Addr[:], m.IPv4.Src.Mask[:])
	case m.IPv6 != nil:
		return address(m.IPv6.Src.Addr[:], m.IPv6.Src.Mask[:])
	}
	return ""
}

func address(a, mask []byte) string {
	if slices.ContainsFunc(mask, func(b byte) bool { return b != 0xff }) {
		return ""
	}
	return string(a)
}

func destinationPort(f *flow.Flow) string {
	return ofPorts(&f.Match, func(p *flow.Ports) flow.Port { return p.Dst })
}

func sourcePort(f *flow.Flow) string {
	return ofPorts(&f.Match, func(p *flow.Ports) flow.Port { return p.Src })
}

func ofPorts(m *flow.Match, which func(*flow.Ports) flow.Port) string {
	protocol, ports := byte(upperTCP), m.TCP
	if ports == nil {
		protocol, ports = upperUDP, m.UDP
	}
	if ports == nil {
		return ""
	}
	p := which(ports)
	if p.Mask != 0xffff { // a range has none
		return ""
	}
	return string([]byte{protocol, byte(p.Value >> 8), byte(p.Value)})
}

// meetings finds the pairs of flows that no key tells apart, and looks at each once.
type meetings struct{ look func(a, b *counted) }

// few is how many pairs for each flow are looked at rather than divided further.
const few = 32

// among looks at the pairs of one set.
func (m meetings) among(all []*counted, by []key) {
	if len(by) == 0 || len(all) <= few {
		for i, f := range all {
			for _, o := range all[:i] {
				m.look(f, o)
			}
		}
		return
	}
	d := divide(all, by[0])
	m.among(d.open, by[1:])
	m.between(d.named, d.open, by[1:])
	for _, v := range d.values {
		m.among(d.by[v], by[1:])
	}
}

// between looks at the pairs of one flow of each of two sets.
func (m meetings) between(a, b []*counted, by []key) {
	if len(by) == 0 || len(a)*len(b) <= few*(len(a)+len(b)) {
		for _, f := range a {
			for _, o := range b {
				m.look(f, o)
			}
		}
		return
	}
	x, y := divide(a, by[0]), divide(b, by[0])
	m.between(x.open, b, by[1:])
	m.between(x.named, y.open, by[1:])
	for _, v := range x.values {
		m.between(x.by[v], y.by[v], by[1:])
	}
}

// division is a set of flows by what a key says of them.
type division struct {
	open, named []*counted
	by          map[string][]*counted
	values      []string // of by, as they came
}

func divide(all []*counted, k key) division {
	d := division{by: make(map[string][]*counted)}
	for _, c := range all {
		v := k(&c.Flow)
		if v == "" {
			d.open = append(d.open, c)
			continue
		}
		if d.by[v] == nil {
			d.values = append(d.values, v)
		}
		d.by[v], d.named = append(d.by[v], c), append(d.named, c)
	}
	return d
}
