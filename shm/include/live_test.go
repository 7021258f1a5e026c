package include

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"os/exec"
	"testing"

	"github.com/flowtally/flowtally/dataplane/engine/live"
	"github.com/flowtally/flowtally/internal/lab/need"
	"github.com/flowtally/flowtally/shm"
	"github.com/flowtally/flowtally/xdp"
)

// counted is a kernel that counts UDP packets to port 1 in one counter and to port 2 in another.
type counted struct {
	rules   *xdp.Datapath
	program *xdp.Program
	ids     [2]uint32
	at      shm.LiveSlot // without slot and base
}

func newCounted(t *testing.T) (*counted, shm.LiveMap) {
	t.Helper()
	need.BPF(t)
	rules, err := xdp.Open(xdp.Options{MaxRules: 64})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { rules.Destroy() })
	k := &counted{rules: rules}
	for i := range k.ids {
		c, err := rules.AllocCounter(fmt.Sprint(i))
		if err != nil {
			t.Fatal(err)
		}
		r := xdp.Rule{Counter: c.ID}
		key, mask := &r.Key.Out, &r.Mask.Out
		key.Flags, mask.Flags = xdp.FlagIPv4|xdp.FlagL4, xdp.FlagIPv4|xdp.FlagL4|xdp.FlagEgress
		key.Proto, mask.Proto = 17, 0xff
		key.L4, mask.L4 = [4]byte{3: byte(i + 1)}, [4]byte{2: 255, 3: 255}
		if err := rules.Add(r); err != nil {
			t.Fatal(err)
		}
		k.ids[i] = c.ID
	}
	if k.program, err = rules.Load(0, xdp.HookIngress, false); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { k.program.Close() })
	m, err := rules.LiveMap()
	if err != nil {
		t.Fatal(err)
	}
	k.at = shm.LiveSlot{Map: m.ID, Epoch: uint32(m.Epoch)}
	return k, shm.LiveMap{FD: m.FD, ID: m.ID, CPUs: m.CPUs, Counters: m.Counters, Stride: m.Stride}
}

// count counts n packets of 64 bytes in counter i.
func (k *counted) count(t *testing.T, i, n int) {
	t.Helper()
	frame := make([]byte, 64)
	copy(frame[12:], []byte{8, 0, 0x45})
	binary.BigEndian.PutUint16(frame[16:], 50)
	frame[23], frame[37] = 17, byte(i+1)
	for range n {
		if _, err := k.program.Run(frame); err != nil {
			t.Fatal(err)
		}
	}
}

// from returns the place of a mirror's counter that stands at total where counter i stands now.
func (k *counted) from(t *testing.T, i int, total uint64) shm.LiveSlot {
	t.Helper()
	var p [1]xdp.Pair
	if err := k.rules.Read(k.ids[i:i+1], p[:]); err != nil {
		t.Fatal(err)
	}
	s := k.at
	s.Slot, s.BasePackets, s.BaseBytes = k.ids[i], total-p[0].Packets, 64*total-p[0].Bytes
	return s
}

// While a counter's slot is given to others and its base changes, C must read the kernel's counts as Go does: exactly, or
// not at all.
func TestCReadsLiveCountsAsGoDoes(t *testing.T) {
	const total = 600
	program := sanitized(t, "live")
	k, m := newCounted(t)
	path, w := newMirror(t, shm.Options{Counters: 64})
	h := add(t, w, shm.Entry{Name: "a", Kind: "flow"})
	set := func(s shm.LiveSlot) {
		t.Helper()
		if err := w.SetLive(h, s); err != nil {
			t.Fatal(err)
		}
	}
	socket, err := live.Listen(live.Options{Path: shm.LivePath(path), Map: m, Mode: 0o600})
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	set(k.from(t, 0, 0))
	cmd := exec.CommandContext(t.Context(), program, path, "a", fmt.Sprint(total))
	var wrong bytes.Buffer
	cmd.Stderr = &wrong
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	if !lines.Scan() || lines.Text() != "begun" {
		t.Fatalf("%q, %v\n%s", lines.Text(), cmd.Wait(), &wrong)
	}
	for n := 1; n <= total; n++ {
		from, to := n%2^1, n%2
		k.count(t, from, 1)
		w.BeginCycle()
		values := shm.Block{{Packets: uint64(n), Bytes: 64 * uint64(n), SampledAt: shm.Now()}}
		w.PublishBlock(0, &values)
		w.EndCycle(shm.Now())
		if n%3 == 0 {
			set(shm.LiveSlot{})
		}
		set(k.from(t, to, uint64(n)))
		k.count(t, from, total+n) // packets of the next owner
	}
	lines.Scan()
	last := lines.Text()
	if err := cmd.Wait(); err != nil {
		t.Fatalf("the reader ends with %q, %v\n%s", last, err, &wrong)
	}
	r, err := shm.OpenReader(path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	l, err := r.Live(h)
	if err != nil {
		t.Fatal(err)
	}
	if p, b, err := l.Load(); p != total || b != 64*total || err != nil {
		t.Errorf("Go reads %d packets, %d bytes, %v", p, b, err)
	}
	t.Log("C: " + last)
}
