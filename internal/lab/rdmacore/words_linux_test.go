//go:build releases

package rdmacore

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/ibv/ibvtest"
	"github.com/flowtally/flowtally/shm"
	"github.com/flowtally/flowtally/shm/shmtest"
)

// TestKernelWordsAreExactWithoutAPoll has an instance count the operations of SRD and UD queue pairs by completion
// counters that the EFA of the uverbs kernel writes into the mirror, over the real libefa of rdma-core 65: one counter
// for each operation. No poll cycle runs, and flows are added until the mirror grows. Every word is exact.
func TestKernelWordsAreExactWithoutAPoll(t *testing.T) {
	overKernel(t, ibvtest.Env{}, []string{"sid"}, countWords)
}

// wordsConfig has a queue pair of type srd that posts, one that is written to and read from, and one of type ud that sends to
// itself: its receives are posted again as fast as it sends, so that no datagram is lost.
func wordsConfig(t *testing.T) dataplane.Config {
	pair := func(name string, typ dataplane.QueuePairType, to string, ops ...dataplane.Operation) dataplane.QueuePair {
		q := dataplane.QueuePair{
			Name: name, Device: "efa_0", Type: typ, Connect: to, Source: dataplane.SourceCompCntr, SendDepth: 128, Receives: 1000, MessageSize: 256,
		}
		for _, op := range ops {
			q.Counters = append(q.Counters, dataplane.CompletionCounter{Name: name + "-" + string(op), Operations: []dataplane.Operation{op}})
		}
		return q
	}
	return dataplane.Config{
		Instance: "words", Backend: flow.Sim, Mirror: dataplane.MirrorConfig{Path: filepath.Join(t.TempDir(), "words.mirror")},
		Poll: dataplane.PollConfig{Period: time.Hour},
		QueuePairs: []dataplane.QueuePair{
			pair("srd", dataplane.SRD, "peer", dataplane.Operations()...),
			pair("peer", dataplane.SRD, "", dataplane.Operations()...),
			pair("ud", dataplane.UD, "ud", dataplane.Send, dataplane.Recv),
		},
	}
}

func countWords(t *testing.T) {
	count := 100_000
	if testing.Short() {
		count = 2_000
	}
	cfg := wordsConfig(t)
	e, err := engine.New(context.Background(), cfg, engine.Options{Logger: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	states, err := e.QueuePairs().List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range states {
		if mode := string(q.Source.Devices[0].Mode); mode != "comp_cntr+external" {
			t.Errorf("%s is counted by %s: %+v", q.Name, mode, q.Rejected)
		}
	}
	r := shmtest.MustOpen(t, cfg.Mirror.Path)
	words := make(map[string]shm.Device) // taken before the mirror grows
	for _, q := range cfg.QueuePairs {
		for _, c := range q.Counters {
			if words[c.Name], err = r.Device(shmtest.MustLookup(t, r, c.Name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	posted := make(chan error, 2)
	post := func(name string, ops ...dataplane.Operation) {
		for _, op := range ops {
			p, err := e.QueuePairs().Post(t.Context(), name, op, count)
			if err == nil && p != (dataplane.Posted{Completed: uint64(count)}) {
				err = fmt.Errorf("%d %s on %s ended as %+v", count, op, name, p)
			}
			if err != nil {
				posted <- err
				return
			}
		}
		posted <- nil
	}
	go post("srd", dataplane.Send, dataplane.RDMARead, dataplane.RDMAWrite)
	go post("ud", dataplane.Send)
	for n := 0; r.Status().Counters <= shm.SegmentLen; n++ {
		flows := make([]flow.Flow, 1024)
		for i := range flows {
			flows[i] = flow.Flow{Name: fmt.Sprintf("f%d-%d", n, i)}
		}
		if _, err := e.AddFlows(t.Context(), flows...); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if err := <-posted; err != nil {
			t.Fatal(err)
		}
	}
	n := uint64(count)
	want := map[string]uint64{
		"srd-send": n, "srd-rdma_read": n, "srd-rdma_write": n, "peer-recv": n, "peer-remote_rdma_read": n, "peer-remote_rdma_write": n,
		"ud-send": n, "ud-recv": n,
	}
	for name, d := range words {
		comp, errs, err := d.Load()
		if comp != want[name] || errs != 0 || err != nil {
			t.Errorf("%s: the words say %d completions and %d errors, %v; want %d and none", name, comp, errs, err, want[name])
		}
		counter, err := r.Counter(shmtest.MustLookup(t, r, name))
		if err != nil {
			t.Fatal(err)
		}
		if v, err := counter.Load(); err == nil && v.Packets != 0 {
			t.Errorf("%s: the poller published %d: no cycle was to run", name, v.Packets)
		}
	}
	t.Logf("%d operations of each kind, counted by %d words; the mirror holds %d counters", count, len(words), r.Status().Counters)
}
