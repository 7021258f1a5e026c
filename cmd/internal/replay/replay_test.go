package replay

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/flowtally/flowtally/cmd/internal/capture"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/internal/lab/need"
	"github.com/flowtally/flowtally/internal/lab/seed"
	"github.com/flowtally/flowtally/internal/oracle"
	"github.com/flowtally/flowtally/internal/oracle/gen"
)

// file is a capture of Ethernet frames, each with the bytes that were captured and the length of the frame.
type file struct{ bytes.Buffer }

func newFile(link uint32) *file {
	f := new(file)
	f.Write([]byte{0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0})
	binary.Write(f, binary.LittleEndian, link)
	return f
}

func (f *file) add(data []byte, length int) {
	binary.Write(f, binary.LittleEndian, [4]uint32{0, 0, uint32(len(data)), uint32(length)})
	f.Write(data)
}

func flows(t testing.TB, texts ...string) (all []flow.Flow) {
	t.Helper()
	for i, text := range texts {
		m, err := flow.ParseMatch(text)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, flow.Flow{Name: fmt.Sprintf("f%d", i), Match: m})
	}
	return all
}

func run(t testing.TB, r io.Reader, o Options) *Report {
	t.Helper()
	rep, err := Run(context.Background(), r, o)
	if err != nil {
		t.Fatal(err)
	}
	if rep.NoBPF != nil {
		t.Fatalf("BPF was not used: %v", rep.NoBPF)
	}
	return rep
}

// The test replays random captures of random packets. Some are cut, and some are longer than the kernel accepts. The
// counts must equal the linear matcher's, and add up to the number of records.
func TestCountsEveryRecord(t *testing.T) {
	need.BPF(t)
	rng := rand.New(rand.NewPCG(seed.Uint64(t), 0))
	var cut, byLinear, hits uint64
	for set := range 12 {
		flows := gen.Flows(rng, 1+rng.IntN(8))
		o := Options{Flows: flows, Direction: flow.Direction(set % 2)}
		layer3 := set%4 == 3
		f := newFile(1)
		if layer3 {
			f = newFile(101)
		}
		m := oracle.New(flows)
		want := &Report{Counts: make([]Count, len(flows))}
		for range 2000 {
			data := gen.Packet(rng, flows)
			if layer3 {
				data = data[min(14, len(data)):]
			}
			switch rng.IntN(50) {
			case 0:
				data = append(data, make([]byte, rng.IntN(70000))...)
			case 1:
				data = data[:rng.IntN(len(data)+1)]
			}
			length := len(data)
			if rng.IntN(10) == 0 {
				length += rng.IntN(100_000)
			}
			f.add(data, length)
			want.Records.add(length)
			p := oracle.Packet{Frame: data[:min(len(data), 3000)], Layer3: layer3, Direction: o.Direction}
			if i, ok := m.Match(p); ok {
				hits++
				want.Counts[i].add(length)
			} else {
				want.Unmatched.add(length)
			}
		}
		got := run(t, f, o)
		if got.Err != nil || got.Records != want.Records || got.Unmatched != want.Unmatched {
			t.Fatalf("set %d: got %+v\nwant %+v", set, got, want)
		}
		for i := range flows {
			if got.Counts[i] != want.Counts[i] {
				t.Fatalf("set %d: flow %s: got %+v, want %+v", set, flows[i].Match, got.Counts[i], want.Counts[i])
			}
		}
		cut, byLinear = cut+got.Cut, byLinear+got.Linear
	}
	t.Logf("24,000 records, %d hit a flow, %d cut, %d counted by the linear matcher for their length", hits, cut, byLinear)
	if hits < 1000 || cut < 1000 || byLinear < 100 {
		t.Error("the test looks at little")
	}
}

func TestCutRecordCountsTheLengthOfItsFrame(t *testing.T) {
	need.BPF(t)
	f := newFile(1)
	frame := make([]byte, 60)
	copy(frame[12:], []byte{0x88, 0xb5})
	f.add(frame, 60)
	f.add(frame[:20], 1514)
	f.add(frame[:13], 60) // the EtherType is behind the cut
	f.add(nil, 60)
	f.add(frame, 9018)
	rep := run(t, f, Options{Flows: flows(t, "eth type 0x88b5", "incomplete")})
	want := []Count{{3, 60 + 1514 + 9018}, {2, 120}}
	if rep.Records != (Count{5, 60 + 1514 + 60 + 60 + 9018}) || rep.Unmatched != (Count{}) || rep.Cut != 4 || rep.Linear != 2 || rep.Counts[0] != want[0] || rep.Counts[1] != want[1] {
		t.Errorf("%+v", rep)
	}
	if notes := strings.Join(rep.Notes(), "\n"); !strings.Contains(notes, "4 records are cut") || !strings.Contains(notes, "2 records have a length") {
		t.Error(notes)
	}
}

func TestBrokenCaptureReturnsTheCountsUpToItsFault(t *testing.T) {
	need.BPF(t)
	f := newFile(1)
	frame := make([]byte, 60)
	for range 5000 {
		f.add(frame, 60)
	}
	b := f.Bytes()
	rep := run(t, bytes.NewReader(b[:len(b)-1]), Options{Flows: flows(t, "any")})
	if !errors.Is(rep.Err, io.ErrUnexpectedEOF) || !strings.Contains(rep.Err.Error(), "record 5000") || rep.Counts[0].Packets != 4999 || rep.Records.Packets != 4999 {
		t.Errorf("%+v", rep)
	}
	var out bytes.Buffer
	if err := rep.PrintJSON(&out, flows(t, "any")); err != nil {
		t.Fatal(err)
	}
	var j ReportJSON
	if err := json.Unmarshal(out.Bytes(), &j); err != nil || j.Complete || j.Error == nil || *j.Counters[0].Packets != 4999 || j.By != "xdp" {
		t.Errorf("%s, %v", out.Bytes(), err)
	}
	if _, err := Run(context.Background(), strings.NewReader("no capture at all"), Options{}); !errors.Is(err, capture.ErrNoCapture) {
		t.Errorf("no capture: %v", err)
	}
}

func TestReplayOfASilentPipeEndsWithItsContext(t *testing.T) {
	need.BPF(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	defer r.Close()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() {
		_, err := Run(ctx, r, Options{Flows: flows(t, "any")})
		done <- err
	}()
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// Neither the classifier nor the linear matcher knows the elements. Without BPF, too, the flows are refused.
func TestFlowsWithNamedSetsAreRefused(t *testing.T) {
	for _, text := range []string{"ipv4 src @blocklist", "gre inner ipv6 dst != @blocklist"} {
		d, err := NewDecider(flows(t, "any", text), nil)
		if err == nil {
			t.Errorf("%s is taken: %v", text, d.Close())
			continue
		}
		if !strings.Contains(err.Error(), `flow "f1"`) || !strings.Contains(err.Error(), "@blocklist") {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// FuzzRun checks that any input yields an error or counts, and that each record is counted by a flow or unmatched.
func FuzzRun(f *testing.F) {
	need.BPF(f)
	for _, link := range []uint32{1, 101, 113} {
		c := newFile(link)
		c.add(make([]byte, 60), 60)
		c.add([]byte{0x45, 0, 0, 20}, 1500)
		f.Add(c.Bytes())
	}
	d, err := NewDecider(flows(f, "ipv4", "ipv6", "incomplete"), nil)
	if err != nil {
		f.Fatal(err)
	}
	defer d.Close()
	f.Fuzz(func(t *testing.T, b []byte) {
		rep, err := d.Replay(context.Background(), bytes.NewReader(b), Options{})
		if err != nil {
			return
		}
		sum := rep.Unmatched.Packets
		for _, c := range rep.Counts {
			sum += c.Packets
		}
		in, err := capture.Open(bytes.NewReader(b))
		if err != nil {
			t.Fatal(err)
		}
		n := uint64(0)
		for ; err == nil; n++ {
			_, err = in.Next()
		}
		if n-1 != sum || n-1 != rep.Records.Packets {
			t.Fatalf("%d records, %d of them counted, %d reported", n-1, sum, rep.Records.Packets)
		}
	})
}

// BenchmarkReplay reports packets per second for frames of 60 bytes.
func BenchmarkReplay(b *testing.B) {
	need.BPF(b)
	f := newFile(1)
	frame := make([]byte, 60)
	copy(frame[12:], []byte{8, 0, 0x45})
	const records = 200_000
	for range records {
		f.add(frame, 60)
	}
	all := flows(b, "tcp dport 443", "udp dport 53", "ipv4 src 10.0.0.0/8", "any")
	b.ResetTimer()
	for b.Loop() {
		rep := run(b, bytes.NewReader(f.Bytes()), Options{Flows: all})
		if rep.Counts[3].Packets != records {
			b.Fatal(rep.Counts)
		}
	}
	b.ReportMetric(float64(records*b.N)/b.Elapsed().Seconds(), "packets/s")
}
