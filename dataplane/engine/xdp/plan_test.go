package xdp

import (
	"fmt"
	"testing"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/flow"
)

// A plan hashes a few exact masks and puts many masks and ranges into trees, where a search costs less than over all masks.
func TestTreesCostLessThanASearchOfAllMasks(t *testing.T) {
	sets := map[string][]flow.Flow{}
	for i := range 1000 {
		for name, text := range map[string]string{
			"exact":  fmt.Sprintf("ipv4 src 10.0.%d.%d", i/256, i%256),
			"masked": fmt.Sprintf("ipv4 src %d.%d.0.0/%d dst 10.%d.0.0/%d", i/256+1, i%256, 16+i%8, i%256, 16+i%3),
			"ranged": fmt.Sprintf("ipv4 src 10.0.%d.%d tcp sport 1-65534 dport 1-65534", i/256, i%256),
		} {
			m, err := flow.ParseMatch(text)
			if err != nil {
				t.Fatal(err)
			}
			sets[name] = append(sets[name], flow.Flow{Name: fmt.Sprint(name, i), Match: m})
		}
	}
	for _, tt := range []struct {
		name                         string
		masks, hashed, trees, tuples int
		most, tupleNS                float64 // tupleNS is the least cost of tuple search
	}{
		{"none", 0, 0, 0, 0, 0, 0},
		{"exact", 1, 1, 0, 1, 20, 10},
		{"masked", 24, 0, 1000, 24, 100, 200},
		{"ranged", 1, 0, 1000, 225, 100, 1000},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p, err := NewPlan(sets[tt.name], 1<<16, dataplane.DefaultWorstCost)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%+v", p)
			if p.Rules != len(sets[tt.name]) || p.Masks != tt.masks || len(p.Hashed) != tt.hashed || p.InTrees != tt.trees || p.TupleMasks != tt.tuples {
				t.Errorf("want %+v", tt)
			}
			if p.NS > tt.most || p.TupleNS < tt.tupleNS || (p.Words == 0) != (tt.trees == 0) {
				t.Errorf("want %+v", tt)
			}
		})
	}
}
