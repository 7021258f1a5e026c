package configs

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/flowtally/flowtally/dataplane"
)

// queuePairs decodes the queue pairs of all files into cfg, and reports the errors of package dataplane at their places. cfg
// must already have the flows, because counters and flows share their names.
func queuePairs(files []*fragment, cfg *dataplane.Config) {
	var places []queuePairPlace
	for _, f := range files {
		if f.pairs == nil {
			continue
		}
		f.sequence(f.pairs, "queue_pairs", func(i int, n *yaml.Node) {
			q, at := f.queuePair(n, fmt.Sprintf("queue_pairs[%d]", i))
			cfg.QueuePairs = append(cfg.QueuePairs, q)
			places = append(places, queuePairPlace{d: f.decoder, index: i, n: n, at: at})
		})
	}
	// Skip errors caused by a field that could not be decoded, which is already reported. All queue pairs are decoded
	// before, because one can depend on another.
	broken := slices.DeleteFunc(cfg.QueuePairErrors(), func(e *dataplane.QueuePairError) bool {
		return !sureOf(cfg.QueuePairs, places, e)
	})
	for _, e := range broken {
		p := places[e.Index]
		p.d.bad(p.of(e.Field), fmt.Sprintf("queue_pairs[%d].%s: %s", p.index, e.Field, e.Cause), e.Fix)
	}
}

// sureOf reports whether an error is certain, and not the consequence of a field that could not be decoded. Most rules
// depend only on the field they are about.
func sureOf(pairs []dataplane.QueuePair, places []queuePairPlace, e *dataplane.QueuePairError) bool {
	p := places[e.Index]
	switch e.Field {
	case "peer.gid": // a LID would do instead
		return p.d.isRead(p, "peer.gid") && p.d.isRead(p, "peer.lid")
	case "connect":
		other := slices.IndexFunc(pairs, func(q dataplane.QueuePair) bool { return q.Name == pairs[e.Index].Connect })
		if other < 0 { // it may be the one whose name could not be decoded
			return !slices.ContainsFunc(places, func(p queuePairPlace) bool { return p.n.Kind == yaml.MappingNode && !p.d.isRead(p, "name") })
		}
		for _, p := range []queuePairPlace{p, places[other]} { // both ends must agree on these
			if !p.d.isRead(p, "type") || !p.d.isRead(p, "message_size") {
				return false
			}
		}
	}
	return p.d.isRead(p, e.Field)
}

// isRead reports whether a field was decoded without a mistake, or is certainly missing. A missing field may be a
// misspelled one, or part of a value that could not be decoded.
func (d *decoder) isRead(p queuePairPlace, field string) bool {
	n := p.of(field)
	if n.Kind == yaml.MappingNode && n != p.at[field] {
		for i := 0; i < len(n.Content); i += 2 {
			if d.wrong[n.Content[i]] {
				return false
			}
		}
	}
	return !d.wrong[n]
}

// queuePairPlace is the place of a queue pair and of its fields.
type queuePairPlace struct {
	d     *decoder // of its file
	index int      // in its file
	n     *yaml.Node
	at    map[string]*yaml.Node // by the field of a dataplane.QueuePairError
}

// of returns the node of a field. If the field is missing, it returns the mapping that lacks it.
func (p queuePairPlace) of(field string) *yaml.Node {
	for {
		if n := p.at[field]; n != nil {
			return n
		}
		i := strings.LastIndexByte(field, '.')
		if i < 0 {
			return p.n
		}
		field = field[:i]
	}
}

func (d *decoder) queuePair(n *yaml.Node, what string) (q dataplane.QueuePair, at map[string]*yaml.Node) {
	at = make(map[string]*yaml.Node)
	note := func(read func(key, value *yaml.Node)) func(key, value *yaml.Node) {
		return func(key, value *yaml.Node) {
			at[key.Value] = value
			read(key, value)
		}
	}
	port := 0
	d.mapping(n, what,
		entry{"name", note(d.text(&q.Name, what+".name"))},
		entry{"device", note(d.text(&q.Device, what+".device"))},
		entry{"port", d.int(&port, what+".port", 0, 255)},
		entry{"gid_index", note(d.whole(&q.GIDIndex, what+".gid_index"))},
		entry{"type", note(word(d, &q.Type, what+".type", dataplane.QueuePairTypes()...))},
		entry{"counters", note(func(_, v *yaml.Node) { q.Counters = d.completionCounters(v, what, at) })},
		entry{"source", note(word(d, &q.Source, what+".source", dataplane.CompletionSources()...))},
		entry{"send_depth", note(d.whole(&q.SendDepth, what+".send_depth"))},
		entry{"receives", note(d.whole(&q.Receives, what+".receives"))},
		entry{"message_size", note(d.whole(&q.MessageSize, what+".message_size"))},
		entry{"peer", note(func(_, v *yaml.Node) { q.Peer = d.address(v, what+".peer", at) })},
		entry{"connect", note(d.text(&q.Connect, what+".connect"))},
	)
	q.Port = uint8(port)
	return q, at
}

func (d *decoder) completionCounters(n *yaml.Node, what string, at map[string]*yaml.Node) (counters []dataplane.CompletionCounter) {
	d.sequence(n, what+".counters", func(i int, n *yaml.Node) {
		here := fmt.Sprintf("counters[%d]", i)
		at[here] = n
		var k dataplane.CompletionCounter
		d.mapping(n, what+"."+here,
			entry{"name", func(key, v *yaml.Node) {
				at[here+".name"] = v
				d.text(&k.Name, what+"."+here+".name")(key, v)
			}},
			entry{"operations", func(_, v *yaml.Node) {
				at[here+".operations"] = v
				d.sequence(v, what+"."+here+".operations", func(i int, v *yaml.Node) {
					operation := fmt.Sprintf("%s.operations[%d]", here, i)
					at[operation] = v
					s, _ := d.scalar(v, what+"."+operation)
					k.Operations = append(k.Operations, dataplane.Operation(s))
				})
			}},
		)
		counters = append(counters, k)
	})
	return counters
}

// address decodes the address of a peer: either the text of `flowtally queue-pairs list`, or a mapping.
func (d *decoder) address(n *yaml.Node, what string, at map[string]*yaml.Node) *dataplane.QueuePairAddress {
	if n.Kind == yaml.ScalarNode {
		a, err := dataplane.ParseQueuePairAddress(n.Value)
		if err != nil {
			d.bad(n, fmt.Sprintf("%s: %s", what, flat(err)), "")
			return nil
		}
		return &a
	}

	var a dataplane.QueuePairAddress
	var lid, qpn, psn, qkey, rkey uint64
	entries := []entry{{"gid", func(_, v *yaml.Node) {
		at["peer.gid"] = v
		d.gid(v, what+".gid", &a.GID)
	}}}
	for _, f := range []struct {
		name string
		to   *uint64
		bits int
	}{
		{"lid", &lid, 16},
		{"qpn", &qpn, 32},
		{"psn", &psn, 32},
		{"qkey", &qkey, 32},
		{"addr", &a.Addr, 64},
		{"rkey", &rkey, 32},
	} {
		entries = append(entries, entry{f.name, func(key, v *yaml.Node) {
			at["peer."+f.name] = v
			d.unsigned(f.to, what+"."+f.name, f.bits)(key, v)
		}})
	}
	d.mapping(n, what, entries...)

	a.LID = uint16(lid)
	a.QPN = uint32(qpn)
	a.PSN = uint32(psn)
	a.QKey = uint32(qkey)
	a.RKey = uint32(rkey)
	return &a
}

// gid decodes a GID, written as an IPv6 address.
func (d *decoder) gid(n *yaml.Node, what string, to *netip.Addr) {
	s, ok := d.scalar(n, what)
	if !ok {
		return
	}
	gid, err := netip.ParseAddr(s)
	if err != nil {
		d.bad(n, fmt.Sprintf("%s: %q is no GID", what, clip(s)), "write it as an IPv6 address, an IPv4 one as ::ffff:192.0.2.1")
		return
	}
	*to = gid
}

// whole decodes a number without a range check, which package dataplane makes. A number too large for an int becomes the
// largest int, which is out of every range.
func (d *decoder) whole(to *int, what string) func(key, value *yaml.Node) {
	return func(_, n *yaml.Node) {
		s, ok := d.scalar(n, what)
		if !ok {
			return
		}
		v, err := strconv.ParseInt(s, 10, strconv.IntSize)
		if errors.Is(err, strconv.ErrSyntax) {
			d.bad(n, fmt.Sprintf("%s: %q is no whole number", what, clip(s)), "")
			return
		}
		*to = int(v)
	}
}

// unsigned decodes a number as printed by the tools of libibverbs: decimal, or hexadecimal with 0x.
func (d *decoder) unsigned(to *uint64, what string, bits int) func(key, value *yaml.Node) {
	return func(_, n *yaml.Node) {
		s, ok := d.scalar(n, what)
		if !ok {
			return
		}
		base, digits := 10, s
		if hex, found := strings.CutPrefix(s, "0x"); found {
			base, digits = 16, hex
		}
		v, err := strconv.ParseUint(digits, base, bits)
		switch {
		case errors.Is(err, strconv.ErrSyntax):
			d.bad(n, fmt.Sprintf("%s: %q is no whole number", what, clip(s)), "write it in decimal, or in hexadecimal with 0x")
		case err != nil:
			d.bad(n, fmt.Sprintf("%s: %s does not fit in %d bits", what, clip(s), bits), "")
		default:
			*to = v
		}
	}
}

// flat returns the text of an error on one line.
func flat(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }
