package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/flowtally/flowtally/cmd/internal/view"
	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/internal/lab/frame"
)

// bannedPort and openPort are the destinations of the test's packets: one is dropped, one is counted.
const bannedPort, openPort = 7000, 7001

// banning is an instance with 4,001 flows under traffic. One flow drops the packets to bannedPort, one counts those to
// openPort.
type banning struct {
	*instance
	snd          *lab.Sender
	passed, open *lab.Observer // behind the program: packets to bannedPort, and to openPort
	sending      chan error
	enough       context.CancelFunc
}

// write writes the configuration file, with n flows beside the two, and extra at the end.
func (b *banning) write(extra string, n int) {
	b.t.Helper()
	var text strings.Builder
	fmt.Fprintf(&text, "instance: %s\ninterfaces: [{name: %s, mode: native}]\nxdp: {keep_pins: true}\nflows:\n"+
		"  - {name: banned, match: tcp dport %d, action: drop}\n  - {name: open, match: tcp dport %d}\n",
		b.name, b.wire.Near.Name, bannedPort, openPort)
	for i := range n {
		fmt.Fprintf(&text, "  - {name: f%d, match: ipv4 dst 10.0.%d.%d}\n", i, i/256, i%256)
	}
	text.WriteString(extra) // behind the others: it changes the order of no flow
	path := filepath.Join(b.dir, "config.yaml")
	if err := os.WriteFile(path+".new", []byte(text.String()), 0o644); err != nil {
		b.t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		b.t.Fatal(err)
	}
}

// apply runs flowtally apply with the file, and returns its lines.
func (b *banning) apply() string {
	b.t.Helper()
	code, out, talk := run(b.t, "apply", "-f", filepath.Join(b.dir, "config.yaml"), "--socket", filepath.Join(b.dir, "run", "s.sock"))
	if code != exitOK {
		b.t.Fatalf("apply: code %d, %s%s\n%s", code, out, talk, b.talk)
	}
	return out
}

// counted returns the packets of a counter.
func (b *banning) counted(name string) uint64 {
	b.t.Helper()
	code, out, talk := run(b.t, "get", "-o", "json", "--mirror", b.mirror, name)
	var j view.ReadingJSON
	if err := json.Unmarshal([]byte(out), &j); code != exitOK || err != nil || len(j.Counters) != 1 || j.Counters[0].Packets == nil {
		b.t.Fatalf("get: code %d, %v, %s%s", code, err, out, talk)
	}
	return *j.Counters[0].Packets
}

// newBanning starts the instance and the traffic, 5,000 packets/s.
func newBanning(t *testing.T) *banning {
	t.Helper()
	b := &banning{instance: newInstance(t, ""), sending: make(chan error, 1)}
	b.write("", 3999)
	b.start()
	to := func(port uint16) [][]byte {
		return [][]byte{frame.Sized(100, frame.Eth{Dst: [6]byte{2, 0, 0, 0, 0, 1}, Src: [6]byte{2, 0, 0, 0, 0, 2}},
			frame.IPv4{Src: frame.Addr("192.0.2.1"), Dst: frame.Addr("192.0.2.2")}, frame.TCP{Src: 1, Dst: port})}
	}
	var err error
	if b.passed, err = b.wire.Near.Observe(bannedPort, false); err != nil {
		t.Fatal(err)
	}
	if b.open, err = b.wire.Near.Observe(openPort, false); err != nil {
		t.Fatal(err)
	}
	if b.snd, err = b.wire.Far.NewSender([]lab.Stream{{Name: "banned", Frames: to(bannedPort)}, {Name: "open", Frames: to(openPort)}}, lab.SenderOptions{Rate: 5000, Batch: 8}); err != nil {
		t.Fatal(err)
	}
	ctx, enough := context.WithCancel(t.Context())
	b.enough = enough
	go func() { b.sending <- b.snd.Run(ctx, 0) }()
	t.Cleanup(func() { enough(); b.snd.Close() })
	b.flowing()
	return b
}

// flowing waits until a hundred more packets were sent to each port.
func (b *banning) flowing() {
	b.t.Helper()
	at := b.snd.Sent()
	lab.Eventually(b.t, "packets to flow", func() bool {
		now := b.snd.Sent()
		return now[0].Packets >= at[0].Packets+100 && now[1].Packets >= at[1].Packets+100
	})
}

// settle ends the traffic. It checks that no packet to bannedPort came through, that none to openPort was lost, and
// that both counters are exact.
func (b *banning) settle() {
	b.t.Helper()
	b.enough()
	if err := <-b.sending; err != nil {
		b.t.Fatal(err)
	}
	if err := b.snd.Drain(b.t.Context()); err != nil {
		b.t.Fatal(err)
	}
	passed, err := b.passed.Stop()
	if err != nil {
		b.t.Fatal(err)
	}
	open, err := b.open.Stop()
	if err != nil {
		b.t.Fatal(err)
	}
	sent := b.snd.Sent()
	if passed.Packets != 0 || open.Packets != sent[1].Packets {
		b.t.Errorf("%d of %d banned packets were let through; %d of %d others arrived", passed.Packets, sent[0].Packets, open.Packets, sent[1].Packets)
	}
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end) && (b.counted("banned") < sent[0].Packets || b.counted("open") < sent[1].Packets); {
		time.Sleep(5 * time.Millisecond)
	}
	if banned, counted := b.counted("banned"), b.counted("open"); banned != sent[0].Packets || counted != sent[1].Packets {
		b.t.Errorf("sent %d and %d, dropped and counted %d and %d", sent[0].Packets, sent[1].Packets, banned, counted)
	}
	b.t.Logf("sent %d packets to the banned port: %d dropped and counted, %d let through; %d to the open port: %d counted, %d arrived",
		sent[0].Packets, b.counted("banned"), passed.Packets, sent[1].Packets, b.counted("open"), open.Packets)
}

// The test changes a set of 4,001 flows by apply and by SIGHUP, under 5,000 packets per second. A flow drops half of
// them.
func TestApplyLetsNoPacketThrough(t *testing.T) {
	b := newBanning(t)
	for i, c := range []struct {
		extra string
		n     int
		want  string
	}{
		{"  - {name: last, match: udp dport 53}\n", 3999, "+ last\n"},
		{"  - {name: last, match: udp dport 53, action: drop}\n", 3999, "~ last: count -> drop\n"},
		{"  - {name: wide, match: ipv4 dst 198.51.100.0/24 tcp}\n", 3997, "- f3997\n- f3998\n- last\n+ wide\n"},
		{"", 3999, "+ f3997\n+ f3998\n- wide\n"},
	} {
		b.write(c.extra, c.n)
		if out := b.apply(); out != c.want {
			t.Errorf("apply %d: %.200q, want %q", i, out, c.want)
		}
		b.flowing()
	}
	b.settle()
	b.stop()
}

// The restart also changes the set of flows.
func TestARestartWithKeptPinsLetsNoPacketThrough(t *testing.T) {
	b := newBanning(t)
	b.stop()
	b.flowing()
	b.write("  - {name: last, match: udp dport 53}\n", 3998)
	b.start()
	b.flowing()
	b.settle()
	b.stop()
}
