package configs_test

import (
	"errors"
	"regexp"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/flowtally/flowtally/configs"
)

// TestQueuePairMistakesAreToldAtOnce: mistakes found by reading and by a rule are reported
// together; consequences of an unreadable field are not.
func TestQueuePairMistakesAreToldAtOnce(t *testing.T) {
	field := regexp.MustCompile(`^queue_pairs[\w.\[\]]*`)
	for _, c := range []struct {
		name, pairs string
		want        []string
	}{
		{"all at once", `
- {name: a, device: d, source: pol_cq, receives: -2, peer: {gid: 1, qpn: 0}, counters: [{name: x, operations: [sned]}]}
- {name: b, device: d, port: 256, connect: nobody, counters: [{name: x, operations: [send]}]}
- {name: c, device: d, peer: "qpn=1"}`, []string{
			"queue_pairs[0].counters[0].operations[0]", "queue_pairs[0].peer.gid", "queue_pairs[0].peer.qpn", "queue_pairs[0].receives", "queue_pairs[0].source",
			"queue_pairs[1].connect", "queue_pairs[1].counters[0].name", "queue_pairs[1].port", "queue_pairs[2].peer",
		}},
		{"a field that is misspelled is not missing", `[{name: a, devise: d, counters: [{nam: x, operations: [send, send]}]}]`, []string{
			"queue_pairs[0]", "queue_pairs[0].counters[0]", "queue_pairs[0].counters[0].operations[1]",
		}},
		{"one that is missing is told beside it", `[{devise: d, counters: [{operations: [send]}]}]`, []string{"queue_pairs[0]", "queue_pairs[0].counters[0].name"}},
		{"the name of the other end", `[{name: a, device: d, connect: b}, {nmae: b, device: d}]`, []string{"queue_pairs[1]"}},
		{"the type of the other end", `[{name: a, device: d, type: ud, connect: b}, {name: b, device: d, type: udd}]`, []string{"queue_pairs[1].type"}},
		{"the size of this end", `[{name: a, device: d, message_size: 4k, connect: b}, {name: b, device: d, message_size: 9}]`, []string{"queue_pairs[0].message_size"}},
		{"a LID in place of a GID", `[{name: a, device: d, peer: {lid: x, qpn: 5}}]`, []string{"queue_pairs[0].peer.lid"}},
		{"no list", `[{name: a, device: d, counters: [{name: x, operations: send}, y]}]`, []string{"queue_pairs[0].counters[0].operations", "queue_pairs[0].counters[1]"}},
		{"no queue pair", `[a, {name: b, device: d, connect: a}]`, []string{"queue_pairs[0]", "queue_pairs[1].connect"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := configs.Parse("x", []byte("queue_pairs: "+c.pairs))
			var bad *configs.Error
			if !errors.As(err, &bad) {
				t.Fatalf("error %v", err)
			}
			var got []string
			for _, p := range bad.Problems {
				got = append(got, field.FindString(p.Msg))
			}
			slices.Sort(got)
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("want (-), told (+):\n%s\n%v", diff, err)
			}
		})
	}
}
