package lab

import "fmt"

// WireOptions shapes a Wire. The zero value is good for most tests.
type WireOptions struct {
	Pair PairOptions
	// Near and Far name the interfaces; empty means unique names.
	Near, Far string
	// NearNetns names the near namespace in /run/netns; empty means anonymous.
	NearNetns string
}

// Wire is the usual test bench: two namespaces and a veth pair between them.
// By convention programs that count are at the near end, senders at the far end.
type Wire struct {
	Near, Far *End
	pair      *Pair
}

// NewWire makes both namespaces and the pair.
func NewWire(o WireOptions) (*Wire, error) {
	if o.Near == "" {
		o.Near = Unique("near")
	}
	if o.Far == "" {
		o.Far = Unique("far")
	}
	near, err := NewNetns(o.NearNetns)
	if err != nil {
		return nil, err
	}
	far, err := NewNetns("")
	if err != nil {
		near.Close()
		return nil, err
	}
	pair, err := NewPair(near, far, o.Near, o.Far, o.Pair)
	if err != nil {
		far.Close()
		near.Close()
		return nil, fmt.Errorf("making a wire: %w", err)
	}
	return &Wire{Near: pair.A, Far: pair.B, pair: pair}, nil
}

// Close removes the pair and gives both namespaces up. Idempotent.
func (w *Wire) Close() error {
	if w.pair == nil {
		return nil
	}
	err := w.pair.Close()
	w.pair = nil
	for _, ns := range []*Netns{w.Near.NS, w.Far.NS} {
		if e := ns.Close(); err == nil {
			err = e
		}
	}
	return err
}
