//go:build vm

package guest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/flowtally/flowtally/dataplane"
)

// The instance of the test, and its configuration. A message is short: the machine's CPU is
// emulated, and rxe computes a checksum over every byte.
const (
	qpInstance = "qp"
	qpReceives = 128
	qpConfig   = `instance: qp
poll: {period: 5ms}
queue_pairs:
  - name: near
    device: rxe0
    gid_index: %[1]d
    message_size: 256
    connect: far
    counters:
      - {name: near-sent, operations: [send]}
      - {name: near-written, operations: [rdma_write]}
      - {name: near-read, operations: [rdma_read]}
  - name: far
    device: rxe0
    gid_index: %[1]d
    message_size: 256
    receives: %[2]d
    counters:
      - {name: far-received, operations: [recv]}
`
)

// 10,000 operations (100,000 in the long form) of a reliable connection over a real kernel RDMA stack, posted by
// `flowtally queue-pairs post`, are counted exactly, from ibv_poll_cq, and shown by `flowtally get`. Operations that
// end in error are counted too, and so is the work after the repair.
func TestQueuePairsCountEveryOperation(t *testing.T) {
	newPair(t, "v0")
	addRXE(t, "rxe0", "v0")
	startInstance(t, qpInstance, fmt.Sprintf(qpConfig, gidIndex(t, "rxe0", "10.77.0.1"), qpReceives))
	checkSource(t)

	start := time.Now()
	sends, writes, reads := uint64(4_000), uint64(3_000), uint64(3_000)
	if long() {
		sends, writes, reads = 40_000, 30_000, 30_000
	}
	want := map[string]shown{}
	for _, c := range []struct {
		op, counter string
		count       uint64
	}{{"send", "near-sent", sends}, {"rdma_write", "near-written", writes}, {"rdma_read", "near-read", reads}} {
		if p := post(t, qpInstance, "near", c.op, c.count); p != (dataplane.Posted{Completed: c.count}) {
			t.Fatalf("%d of %s ended as %+v", c.count, c.op, p)
		}
		want[c.counter] = shown{Completions: c.count}
	}
	want["far-received"] = shown{Completions: sends}
	total := sends + writes + reads
	took := time.Since(start)
	checkShown(t, qpInstance, want)
	t.Logf("%d operations posted, completed and shown exactly: %d sent and received, %d written, %d read; %s, %.0f/s",
		total, sends, writes, reads, took.Round(time.Millisecond), float64(total)/took.Seconds())

	// A wrong key: the peer refuses the first write and both ends are in error. Every outstanding
	// write ends in error here, and every receive buffer at the peer.
	near := queuePairs(t, qpInstance)["near"]
	peer, err := dataplane.ParseQueuePairAddress(near.Peer)
	if err != nil {
		t.Fatal(err)
	}
	peer.RKey ^= 0xff
	command(t, program(t, "flowtally"), "queue-pairs", "connect", "--instance", qpInstance, "near", peer.String())
	command(t, program(t, "flowtally"), "queue-pairs", "connect", "--instance", qpInstance, "far", near.Local)
	flushed := published(t, qpInstance)
	const refused = 256 // the send depth: the outstanding writes when the first is refused
	if p := post(t, qpInstance, "near", "rdma_write", 1000); p != (dataplane.Posted{Errors: refused}) {
		t.Errorf("writes with a wrong key ended as %+v, want %d in error", p, refused)
	}
	want["near-written"] = shown{Completions: writes, Errors: refused}
	want["far-received"] = shown{Completions: sends, Errors: flushed["far-received"].Errors + qpReceives}
	checkShown(t, qpInstance, want)
	pairs := queuePairs(t, qpInstance)
	if pairs["near"].State != "ERR" || pairs["far"].State != "ERR" {
		t.Errorf("the queue pairs are in %s and %s, want ERR", pairs["near"].State, pairs["far"].State)
	}
	said := command(t, program(t, "flowtally"), "queue-pairs", "list", "--instance", qpInstance)
	if !strings.Contains(said, "queue-pair-error") {
		t.Errorf("nothing is said of the error:\n%s", said)
	}
	t.Logf("in error: %d writes, %d receives flushed\n%s", refused, qpReceives, said)

	command(t, program(t, "flowtally"), "queue-pairs", "connect", "--instance", qpInstance, "near")
	want = published(t, qpInstance) // reconnecting may flush operations posted since
	posted := command(t, program(t, "flowtally"), "queue-pairs", "post", "--instance", qpInstance, "near", "send", "--count", "1000")
	if fields := strings.Fields(posted); !slices.Equal(fields[len(fields)-4:], []string{"near", "send", "1,000", "0"}) {
		t.Errorf("after mending, 1000 were sent as\n%s", posted)
	}
	for name, n := range map[string]uint64{"near-sent": 1000, "far-received": 1000} {
		s := want[name]
		s.Completions += n
		want[name] = s
	}
	checkShown(t, qpInstance, want)
	if want["near-sent"] != (shown{Completions: sends + 1000}) {
		t.Errorf("near-sent ended at %+v", want["near-sent"])
	}
	t.Logf("mended, and shown by flowtally get:\n%s%s", posted, command(t, program(t, "flowtally"), "get", "--instance", qpInstance))
}

// Two processes on one device are told each other's address, as
// `flowtally queue-pairs list` shows it, and count each their side: of a reliable connection,
// and of datagrams.
func TestQueuePairsOfTwoInstancesCountTheirSides(t *testing.T) {
	newPair(t, "v0")
	addRXE(t, "rxe0", "v0")
	gid := gidIndex(t, "rxe0", "10.77.0.1")
	instances := []string{"east", "west"}
	for _, name := range instances {
		startInstance(t, name, fmt.Sprintf(`instance: %s
poll: {period: 5ms}
queue_pairs:
  - {name: stream, device: rxe0, gid_index: %[2]d, counters: [{name: stream-out, operations: [send, rdma_write]}, {name: stream-in, operations: [recv]}]}
  - {name: datagrams, device: rxe0, gid_index: %[2]d, type: ud, counters: [{name: datagrams-out, operations: [send]}, {name: datagrams-in, operations: [recv]}]}
`, name, gid))
	}
	for i, name := range instances {
		peers := queuePairs(t, instances[1-i])
		for _, q := range []string{"stream", "datagrams"} {
			command(t, program(t, "flowtally"), "queue-pairs", "connect", "--instance", name, q, peers[q].Local)
		}
	}
	// Not more datagrams at a time than there are buffers for: nothing holds them back.
	const sends, writes, datagrams, back = 2000, 1000, 200, 50
	for _, c := range []struct {
		instance, name, op string
		count              uint64
	}{
		{"east", "stream", "send", sends}, {"east", "stream", "rdma_write", writes}, {"east", "datagrams", "send", datagrams}, {"west", "stream", "send", back}, {"west", "datagrams", "send", back},
	} {
		if p := post(t, c.instance, c.name, c.op, c.count); p != (dataplane.Posted{Completed: c.count}) {
			t.Fatalf("%s: %d of %s on %s ended as %+v", c.instance, c.count, c.op, c.name, p)
		}
	}
	checkShown(t, "east", map[string]shown{
		"stream-out": {Completions: sends + writes}, "stream-in": {Completions: back}, "datagrams-out": {Completions: datagrams}, "datagrams-in": {Completions: back},
	})
	checkShown(t, "west", map[string]shown{
		"stream-out": {Completions: back}, "stream-in": {Completions: sends}, "datagrams-out": {Completions: back}, "datagrams-in": {Completions: datagrams},
	})
	t.Logf("west:\n%s%s", command(t, program(t, "flowtally"), "queue-pairs", "--instance", "west"), command(t, program(t, "flowtally"), "get", "--instance", "west"))
}
