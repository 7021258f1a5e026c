package flowrows

import (
	"context"
	"errors"
	"fmt"
	"runtime"

	"github.com/flowtally/flowtally/internal/bench"
)

// kind is the process in which the instances of a row run, and the backend by which they count.
type kind int

const (
	embedded kind = iota // in this process, by XDP
	onNIC                // in this process, by the software NIC over XDP
	running              // `flowtally run` and its plugin, by XDP
)

// site holds the objects that all rows share. Each is made by the first row that needs it.
type site struct {
	bin    string
	ground *ground
	made   map[kind]pair
	open   bench.Closers
}

// pair is an instance of few flows and one of many, or the reason why they could not be made.
type pair struct {
	few, many *subject
	memory    float64 // bytes per flow of running instances, measured before any row changes the instances
	held      float64 // bytes per flow of a slice and a map in this process
	err       error
}

// sides compares one change on the two instances of a kind.
func (o one) sides(p pair) (*bench.Sides, error) {
	return &bench.Sides{
		Ours: o.side(p.many),
		Ref:  o.side(p.few),
		N:    o.n,
	}, nil
}

// make makes the two instances of a kind, once. After an error of the host's load it can be called again.
func (s *site) make(ctx context.Context, k kind) error {
	if p, ok := s.made[k]; ok {
		return p.err
	}
	var p pair
	if p.few, p.err = s.start(ctx, k, few); p.err == nil {
		p.many, p.err = s.start(ctx, k, many)
	}
	if p.err == nil && k == running {
		p.memory, p.err = p.perFlow(ctx)
		p.held = held(many - few)
	}
	if p.err != nil {
		p.err = fmt.Errorf("starting the instances to measure on: %w", p.err)
	}
	if errors.Is(p.err, bench.ErrDisturbed) {
		return p.err // not kept: the next call may do better
	}
	s.made[k] = p
	return p.err
}

// perFlow is the difference between the memory of the larger and of the smaller instance, divided by
// the difference between their numbers of flows.
func (p pair) perFlow(ctx context.Context) (float64, error) {
	least, err := p.few.anonymous(ctx)
	if err != nil {
		return 0, err
	}
	most, err := p.many.anonymous(ctx)
	return float64(most-least) / (many - few), err
}

// held is the memory that each of n flows takes in a slice, with its name in a map.
func held(n int) float64 {
	live := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}

	before := live()
	list := flows(n)
	index := make(map[string]int, n)
	for i := range list {
		index[list[i].Name] = i
	}
	after := live()
	runtime.KeepAlive(list)
	runtime.KeepAlive(index)
	return float64(after-before) / float64(n)
}

// memory compares the memory of a flow in both processes with what one flow takes by itself.
func memory(p pair) (*bench.Sides, error) {
	is := func(bytes float64) bench.Side {
		return func(context.Context, int) (float64, error) { return bytes, nil }
	}
	return &bench.Sides{
		Ours: is(p.memory),
		Ref:  is(p.held),
		N:    1,
	}, nil
}

// close ends everything. Idempotent.
func (s *site) close() error {
	clear(s.made)
	s.ground = nil
	return s.open.Close()
}
