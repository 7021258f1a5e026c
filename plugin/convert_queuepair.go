package plugin

import (
	"fmt"
	"math"
	"net/netip"
	"unicode/utf8"

	"github.com/flowtally/flowtally/dataplane"
	pluginv1 "github.com/flowtally/flowtally/plugin/proto/v1"
)

// queuePairsToProto converts the queue pairs of a configuration.
func queuePairsToProto(in []dataplane.QueuePair) ([]*pluginv1.QueuePair, error) {
	var out []*pluginv1.QueuePair
	for _, q := range in {
		p := &pluginv1.QueuePair{
			Name:        q.Name,
			Device:      q.Device,
			Port:        uint32(q.Port),
			GidIndex:    int64(q.GIDIndex),
			Type:        string(q.Type),
			Source:      string(q.Source),
			SendDepth:   int64(q.SendDepth),
			Receives:    int64(q.Receives),
			MessageSize: int64(q.MessageSize),
			Connect:     q.Connect,
		}
		words := []string{q.Name, q.Device, p.Type, p.Source, q.Connect}
		for _, k := range q.Counters {
			p.Counters = append(p.Counters, completionCounterToProto(k))
			words = append(words, k.Name)
			for _, op := range k.Operations {
				words = append(words, string(op))
			}
		}
		if q.Peer != nil {
			p.Peer = addressToProto(*q.Peer)
			words = append(words, p.Peer.Gid)
		}
		for _, s := range words {
			if !utf8.ValidString(s) {
				return nil, invalid("queue pair %q: %q is not UTF-8", q.Name, s)
			}
		}
		out = append(out, p)
	}
	return out, nil
}

// queuePairsFromProto is part of configFromProto. num converts a number and collects an error if it does not fit.
func queuePairsFromProto(in []*pluginv1.QueuePair, num func(field string, v int64) int) ([]dataplane.QueuePair, error) {
	var out []dataplane.QueuePair
	for i, p := range in {
		if p == nil {
			return nil, invalid("queue pair %d: empty", i)
		}
		if p.Port > math.MaxUint8 {
			return nil, invalid("queue pair %.80q: port %d is above %d", p.Name, p.Port, math.MaxUint8)
		}
		q := dataplane.QueuePair{
			Name:        p.Name,
			Device:      p.Device,
			Port:        uint8(p.Port),
			GIDIndex:    num("gid_index", p.GidIndex),
			Type:        dataplane.QueuePairType(p.Type),
			Source:      dataplane.CompletionSource(p.Source),
			SendDepth:   num("send_depth", p.SendDepth),
			Receives:    num("receives", p.Receives),
			MessageSize: num("message_size", p.MessageSize),
			Connect:     p.Connect,
		}
		for _, k := range p.Counters {
			q.Counters = append(q.Counters, completionCounterFromProto(k))
		}
		if p.Peer != nil {
			peer, err := addressFromProto(p.Peer)
			if err != nil {
				return nil, fmt.Errorf("queue pair %.80q: peer: %w", p.Name, err)
			}
			q.Peer = &peer
		}
		out = append(out, q)
	}
	return out, nil
}

func completionCounterToProto(k dataplane.CompletionCounter) *pluginv1.CompletionCounter {
	p := &pluginv1.CompletionCounter{Name: k.Name}
	for _, op := range k.Operations {
		p.Operations = append(p.Operations, string(op))
	}
	return p
}

func completionCounterFromProto(p *pluginv1.CompletionCounter) dataplane.CompletionCounter {
	k := dataplane.CompletionCounter{Name: p.GetName()}
	for _, op := range p.GetOperations() {
		k.Operations = append(k.Operations, dataplane.Operation(op))
	}
	return k
}

func addressToProto(a dataplane.QueuePairAddress) *pluginv1.QueuePairAddress {
	p := &pluginv1.QueuePairAddress{
		Lid:  uint32(a.LID),
		Qpn:  a.QPN,
		Psn:  a.PSN,
		Qkey: a.QKey,
		Addr: a.Addr,
		Rkey: a.RKey,
	}
	if a.GID.IsValid() {
		p.Gid = a.GID.String()
	}
	return p
}

// knownAddressToProto returns nil for the zero address.
func knownAddressToProto(a dataplane.QueuePairAddress) *pluginv1.QueuePairAddress {
	if a == (dataplane.QueuePairAddress{}) {
		return nil
	}
	p := addressToProto(a)
	p.Gid = text(p.Gid)
	return p
}

// addressFromProto returns the zero address for nil.
func addressFromProto(p *pluginv1.QueuePairAddress) (dataplane.QueuePairAddress, error) {
	if p.GetLid() > math.MaxUint16 {
		return dataplane.QueuePairAddress{}, invalid("lid %d is above %d", p.GetLid(), math.MaxUint16)
	}
	a := dataplane.QueuePairAddress{
		LID:  uint16(p.GetLid()),
		QPN:  p.GetQpn(),
		PSN:  p.GetPsn(),
		QKey: p.GetQkey(),
		Addr: p.GetAddr(),
		RKey: p.GetRkey(),
	}
	if p.GetGid() != "" {
		gid, err := netip.ParseAddr(p.GetGid())
		if err != nil {
			return dataplane.QueuePairAddress{}, invalid("%.80q is no GID", p.GetGid())
		}
		a.GID = gid
	}
	return a, nil
}

func queuePairStatesToProto(in []dataplane.QueuePairState) []*pluginv1.QueuePairState {
	out := make([]*pluginv1.QueuePairState, len(in))
	for i, q := range in {
		p := &pluginv1.QueuePairState{
			Name:        text(q.Name),
			Device:      text(q.Device),
			Type:        text(string(q.Type)),
			Port:        uint32(q.Port),
			State:       text(q.State),
			Source:      sourceToProto(q.Source),
			Rejected:    rejectionsToProto(q.Rejected),
			Outstanding: int64(q.Outstanding),
		}
		p.Local = knownAddressToProto(q.Local)
		p.Peer = knownAddressToProto(q.Peer)
		for _, k := range q.Counters {
			counter := completionCounterToProto(k.CompletionCounter)
			counter.Name = text(counter.Name)
			for i, op := range counter.Operations {
				counter.Operations[i] = text(op)
			}
			p.Counters = append(p.Counters, &pluginv1.CountedOperations{Counter: counter, Handle: handleToProto(k.Counter)})
		}
		out[i] = p
	}
	return out
}

func queuePairStatesFromProto(in []*pluginv1.QueuePairState) ([]dataplane.QueuePairState, error) {
	out := make([]dataplane.QueuePairState, len(in))
	for i, p := range in {
		local, err := addressFromProto(p.GetLocal())
		if err != nil {
			return nil, fmt.Errorf("reading queue pair %d of the plugin: %w", i, err)
		}
		peer, err := addressFromProto(p.GetPeer())
		if err != nil {
			return nil, fmt.Errorf("reading queue pair %d of the plugin: %w", i, err)
		}
		if p.GetPort() > math.MaxUint8 || int64(int(p.GetOutstanding())) != p.GetOutstanding() {
			return nil, fmt.Errorf("reading queue pair %d of the plugin: %w", i, invalid("a number does not fit"))
		}
		q := dataplane.QueuePairState{
			Name:        p.GetName(),
			Device:      p.GetDevice(),
			Type:        dataplane.QueuePairType(p.GetType()),
			Port:        uint8(p.GetPort()),
			State:       p.GetState(),
			Local:       local,
			Peer:        peer,
			Source:      sourceFromProto(p.GetSource()),
			Rejected:    rejectionsFromProto(p.GetRejected()),
			Outstanding: int(p.GetOutstanding()),
		}
		for _, k := range p.GetCounters() {
			q.Counters = append(q.Counters, dataplane.CountedOperations{
				CompletionCounter: completionCounterFromProto(k.GetCounter()),
				Counter:           handleFromProto(k.GetHandle()),
			})
		}
		out[i] = q
	}
	return out, nil
}
