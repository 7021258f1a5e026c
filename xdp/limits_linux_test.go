package xdp

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
)

func TestDroppedPacketIsCountedAndDoesNotArrive(t *testing.T) {
	w := testWire(t)
	dp := openTest(t, Options{MaxRules: 1024})
	drop, pass := mustCounter(t, dp, "drop"), mustCounter(t, dp, "pass")
	r := exact4(0x0a000001, 0x0a000002, 1000, 53, drop)
	r.Drop = true
	mustAdd(t, dp, r, exact4(0x0a000001, 0x0a000002, 1001, 53, pass))
	attach(t, dp, w.Near, AttachOptions{Mode: ModeNative, Ingress: true, Egress: true})
	p := map[Hook]*ebpf.Program{}
	for k, h := range dp.hooks {
		p[k.hook] = h.prog
	}
	for i, want := range []uint32{xdpDrop, xdpPass, xdpPass} {
		if got := runFrame(t, p[HookIngress], udp4(0x0a000001, 0x0a000002, uint16(1000+i), 53, 64)); got != want {
			t.Errorf("packet %d: verdict %d, want %d", i, got, want)
		}
	}
	if d, s := readOne(t, dp, drop), readOne(t, dp, pass); d != (Pair{1, 64}) || s != (Pair{1, 64}) {
		t.Errorf("counted %+v dropped and %+v passed", d, s)
	}
}

func TestFrameInSeveralBuffersCountsWhole(t *testing.T) {
	w := testWire(t)
	dp := openTest(t, Options{MaxRules: 1024})
	id := mustCounter(t, dp, "a")
	mustAdd(t, dp, exact4(1, 2, 3, 4, id))
	attach(t, dp, w.Near, AttachOptions{Mode: ModeNative, Ingress: true})
	var want uint64
	for _, size := range []int{64, 1514, 3400, 3600, 9014, 16000} {
		for _, h := range dp.hooks {
			runFrame(t, h.prog, udp4(1, 2, 3, 4, size))
		}
		want += uint64(size)
		if got := readOne(t, dp, id).Bytes; got != want {
			t.Errorf("a frame of %d bytes: counted %d in all, want %d", size, got, want)
			want = got
		}
	}
	old, err := dp.loader.loadNamed(dp.constants, site{hookKey: hookKey{1, HookIngress}}, flowtallyProgFlowtallyXdp61)
	if err != nil {
		t.Fatal(err)
	}
	defer old.Close()
	for _, size := range []int{64, 9014} {
		runFrame(t, old, udp4(1, 2, 3, 4, size))
		want += uint64(size)
	}
	if got := readOne(t, dp, id).Bytes; got != want {
		t.Errorf("the program for kernels before 6.2: counted %d bytes, want %d", got, want)
	}
}

func TestReadAllocatesNothing(t *testing.T) {
	dp := openTest(t, Options{MaxRules: 1024})
	var ids []uint32
	for i := range 100 {
		ids = append(ids, mustCounter(t, dp, ownerName(i)))
	}
	dst := make([]Pair, 100)
	if n := testing.AllocsPerRun(100, func() {
		if dp.Read(ids, dst) != nil {
			t.Fatal("reading failed")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkRead4k(b *testing.B) {
	dp := openTest(b, Options{MaxRules: 4096})
	var ids []uint32
	for i := range 4096 {
		ids = append(ids, mustCounter(b, dp, ownerName(i)))
	}
	dst := make([]Pair, len(ids))
	b.ReportAllocs()
	for b.Loop() {
		dp.Read(ids, dst)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/4096, "ns/counter")
}

// Slots are never zeroed, so the base must hide the count of the last owner.
func TestReusedSlotStartsAtZero(t *testing.T) {
	dir := pinDir(t)
	dp := openTest(t, Options{MaxRules: 256, MaxCounters: 4, PinDir: dir})
	p := program(t, dp, HookIngress, 1)
	_ = p
	for round := range 20 {
		c, err := dp.AllocCounter(ownerName(round))
		if err != nil {
			t.Fatal(err)
		}
		if c.Adopted || c.Cookie == 0 {
			t.Fatalf("round %d: %+v", round, c)
		}
		again, err := dp.AllocCounter(ownerName(round))
		if err != nil || again.ID != c.ID || again.Cookie != c.Cookie || !again.Adopted {
			t.Fatalf("round %d: got %+v and %+v, %v", round, c, again, err)
		}
		if v := readOne(t, dp, c.ID); v != (Pair{}) {
			t.Fatalf("round %d: a new counter stands at %+v", round, v)
		}
		r := exact4(1, 2, 3, 4, c.ID)
		mustAdd(t, dp, r)
		if err := dp.FreeCounter(c.ID); !errors.Is(err, ErrInvalid) {
			t.Fatalf("freeing a counter in use: %v", err)
		}
		runFrame(t, program(t, dp, HookIngress, 1), udp4(1, 2, 3, 4, 100))
		if v := readOne(t, dp, c.ID); v != (Pair{1, 100}) {
			t.Fatalf("round %d: counted %+v", round, v)
		}
		if err := dp.Remove(r); err != nil {
			t.Fatal(err)
		}
		if err := dp.FreeCounter(c.ID); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 4 {
		mustCounter(t, dp, ownerName(100+i))
	}
	if _, err := dp.AllocCounter("one too many"); !errors.Is(err, ErrFull) {
		t.Errorf("a fifth counter: %v", err)
	}
}

// A rule set numbers 1,023 interfaces, takes rules for the last of them, and refuses one more while rules name all.
func TestThousandInterfacesHaveNumbers(t *testing.T) {
	dp := openTest(t, Options{MaxRules: 1024})
	id := mustCounter(t, dp, "a")
	var rules []Rule
	for i := 1; i < maxPorts; i++ {
		n, err := dp.Port(fmt.Sprintf("eth%d", i))
		if err != nil || n != uint16(i) {
			t.Fatalf("interface %d has the number %d: %v", i, n, err)
		}
		r := exact4(1, 2, 3, 4, id)
		r.Key.Out.Port, r.Mask.Out.Port = n, 0xffff
		rules = append(rules, r)
	}
	mustAdd(t, dp, rules...)
	if _, err := dp.Port("eth1024"); !errors.Is(err, ErrFull) || !strings.Contains(err.Error(), "1023 interfaces") {
		t.Errorf("one interface too many: %v", err)
	}

	runFrame(t, program(t, dp, HookIngress, maxPorts-1), udp4(1, 2, 3, 4, 100))
	if got := readOne(t, dp, id); got != (Pair{1, 100}) {
		t.Errorf("counted %+v on the last interface", got)
	}
	if err := dp.Remove(rules[7]); err != nil {
		t.Fatal(err)
	}
	if n, err := dp.Port("eth1024"); err != nil || n != 8 {
		t.Errorf("the number of an interface that no rule names any more was not given out: %d, %v", n, err)
	}
}

func TestErrorsMatchTheirSentinels(t *testing.T) {
	dir := pinDir(t)
	dp := openTest(t, Options{MaxRules: 256, PinDir: dir})
	id := mustCounter(t, dp, "a")
	t.Run("second owner", func(t *testing.T) {
		if _, err := Open(Options{PinDir: dir}); !errors.Is(err, ErrInUse) || !strings.Contains(err.Error(), dir) {
			t.Error(err)
		}
	})
	t.Run("not a bpffs", func(t *testing.T) {
		// A mount there would hide the directory's files.
		if _, err := Open(Options{PinDir: t.TempDir()}); !errors.Is(err, ErrInvalid) || strings.Contains(err.Error(), "mount") || !strings.Contains(err.Error(), "below "+bpffs) {
			t.Error(err)
		}
	})
	t.Run("no such interface", func(t *testing.T) {
		if _, err := dp.Attach("no-such-if", AttachOptions{Ingress: true}); !errors.Is(err, ErrNotFound) {
			t.Error(err)
		}
	})
	t.Run("rule", func(t *testing.T) {
		r := exact4(1, 2, 3, 4, id)
		r.Key.Out.TTL = 1
		if err := dp.Add(r); !errors.Is(err, ErrInvalid) {
			t.Error(err)
		}
		r = exact4(1, 2, 3, 4, id+1)
		if err := dp.Add(r); !errors.Is(err, ErrInvalid) {
			t.Error(err)
		}
		r.Counter = id
		if err := dp.Remove(r); !errors.Is(err, ErrNotFound) {
			t.Error(err)
		}
		mustAdd(t, dp, r)
		if err := dp.Add(exact4(9, 9, 9, 9, id), r); !errors.Is(err, ErrExists) {
			t.Error(err)
		}
		if n := len(dp.Rules()); n != 1 {
			t.Errorf("%d rules after a refused set, want 1", n)
		}
	})
	t.Run("hook taken", func(t *testing.T) {
		w := testWire(t)
		foreign, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: "foreign", Type: ebpf.XDP, License: "GPL",
			Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, xdpPass), asm.Return()}})
		if err != nil {
			t.Fatal(err)
		}
		defer foreign.Close()
		err = w.Near.NS.Do(func() error {
			l, err := link.AttachXDP(link.XDPOptions{Program: foreign, Interface: w.Near.Index})
			if err != nil {
				return err
			}
			defer l.Close()
			if _, err := dp.Attach(w.Near.Name, AttachOptions{Ingress: true}); !errors.Is(err, ErrBusy) || !strings.Contains(err.Error(), "foreign") {
				t.Error(err)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	})
	t.Run("closed", func(t *testing.T) {
		other, err := Open(Options{MaxRules: 256})
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(other.Close(), other.Close()); err != nil {
			t.Error(err)
		}
		if err := other.Read(nil, nil); !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
		if err := other.Add(); !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
	})
}

// Maps left by a process that died while making them are made again. Pins with another layout, or too small, are refused.
func TestUnfinishedPinsAreMadeAgainAndForeignOnesRefused(t *testing.T) {
	dir := pinDir(t)
	dp, err := Open(Options{MaxRules: 256, PinDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	dp.meta.header[1] = layoutWithSets + 1
	dp.Close()
	if _, err := Open(Options{MaxRules: 256, PinDir: dir}); !errors.Is(err, ErrIncompatible) {
		t.Errorf("another layout: %v", err)
	}
	os.Remove(filepath.Join(dir, "meta"))
	dp, err = Open(Options{MaxRules: 256, PinDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	dp.meta.header[0] = 0
	dp.Close()
	dp, err = Open(Options{MaxRules: 256, PinDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	dp.Close()
	if _, err := Open(Options{MaxRules: 1 << 17, PinDir: dir}); !errors.Is(err, ErrIncompatible) || !strings.Contains(err.Error(), dir) {
		t.Errorf("more rules than the pins hold: %v", err)
	}
}

// The rules are exact matches of IPv6, which take the most memory.
func TestTablesHoldAndFindTheMostExactRules(t *testing.T) {
	dp := openTest(t, Options{})
	id := mustCounter(t, dp, "a")
	rules := make([]Rule, defaultRules)
	for i := range rules {
		r := Rule{Counter: id}
		k, m := &r.Key.Out, &r.Mask.Out
		k.Flags, m.Flags = FlagIPv6|FlagL4, FlagIPv6|FlagL4|FlagEgress
		k.Proto, m.Proto = 17, 0xff
		m.L4 = [4]byte{255, 255, 255, 255}
		for j := range m.Addr {
			m.Addr[j] = 255
		}
		k.Addr[0], k.Addr[14], k.Addr[15], k.Addr[31] = 0x20, byte(i>>8), byte(i), 1
		k.L4 = [4]byte{byte(i >> 8), byte(i), 0, 53}
		rules[i] = r
	}
	mustAdd(t, dp, rules...)
	if err := dp.verify(); err != nil {
		t.Fatal(err)
	}
	if err := dp.Add(exact4(1, 2, 3, 4, id)); !errors.Is(err, ErrFull) {
		t.Errorf("one rule more: %v", err)
	}
	if err := dp.Remove(rules...); err != nil {
		t.Fatal(err)
	}
	mustAdd(t, dp, rules...)
	if n := dp.Stats().Rules; n != defaultRules {
		t.Errorf("%d rules, want %d", n, defaultRules)
	}
}
