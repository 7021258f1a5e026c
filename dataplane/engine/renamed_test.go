package engine

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/internal/inject"
	"github.com/flowtally/flowtally/shm"
)

// matchBackend knows the slots of flows by their matches, as XDP does. The entry of the flow odd cannot be finished.
type matchBackend struct {
	*handBackend
	odd string
}

func (b *matchBackend) Install(ctx context.Context, flows []backend.Placed) ([]backend.Installed, error) {
	byMatch := slices.Clone(flows)
	for i := range byMatch {
		byMatch[i].Name = flows[i].Match.String()
	}
	out, err := b.handBackend.Install(ctx, byMatch)
	for i, f := range flows {
		if f.Name == b.odd {
			out[i].Basis = strings.Repeat("x", 100)
		}
	}
	return out, err
}

// A start renames a flow, gives its name to another match, and fails between the two. Its total goes on in the next start.
// The slot alone has the packets since the source began again.
func TestAFailedStartKeepsTheTotalOfARenamedFlow(t *testing.T) {
	dns, ntp := match(t, "udp dport 53"), match(t, "udp dport 123")
	b := &matchBackend{handBackend: newHand("hand")}
	cfg := config(t, flow.Flow{Name: "a", Match: dns})
	total := uint64(0)
	for _, own := range []uint64{500, 200} {
		b.forget()
		e := start(t, cfg, b)
		total += own
		b.count(dns.String(), backend.Pair{Packets: own, Bytes: own * 60})
		await(t, reader(t, cfg), "a", backend.Pair{Packets: total, Bytes: total * 60})
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
	}
	cfg.Flows = []flow.Flow{{Name: "a", Match: ntp}, {Name: "z", Match: match(t, "udp dport 1")}, {Name: "b", Match: dns}}
	b.odd = "z"
	if _, err := New(inject.Backends(t.Context(), b), cfg, Options{}); !errors.Is(err, shm.ErrInvalid) {
		t.Fatalf("the start: %v", err)
	}
	b.odd = ""
	e := start(t, cfg, b)
	await(t, reader(t, cfg), "b", backend.Pair{Packets: 700, Bytes: 42000})
	await(t, reader(t, cfg), "a", backend.Pair{})
	if entries := e.writer.Entries(); len(entries) != 3 {
		t.Errorf("entries %v", entries)
	}
}
