package xdp

import (
	"archive/zip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/flowtally/flowtally/internal/lab/need"
)

// pinRecorded pins what testdata/layout10.zip has: the maps of an instance of revision 928aa47f on an x86-64 machine with
// two CPUs. SIGKILL ended the instance. CPU 0 counted all packets, half of them after the kill.
func pinRecorded(t *testing.T, dir string) {
	t.Helper()
	need.BPF(t)
	archive, err := zip.OpenReader("testdata/layout10.zip")
	if err != nil {
		t.Fatal(err)
	}
	defer archive.Close()
	recorded := make(map[string][]byte)
	for _, f := range archive.File {
		r, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		if recorded[f.Name], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
	}

	// The counters of this machine have as many blocks as it has CPUs, of whole pages.
	header := wordsOf(recorded["meta"])
	g, err := geometryOf(header)
	if err != nil {
		t.Fatal(err)
	}
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		t.Fatal(err)
	}
	here, err := newGeometry(Options{MaxRules: g.rules, MaxCounters: g.counters}, cpus)
	if err != nil {
		t.Fatal(err)
	}
	recorded["counters"] = recorded["counters"][:min(g.block, here.block)]
	g.cpus, g.block = cpus, here.block
	header[6], header[7] = uint64(g.cpus), uint64(g.block)

	lock, err := lockDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	all := newMaps().all
	for i, size := range newMaps().sizes(g) {
		value := make([]byte, size)
		copy(value, recorded[all[i].name])
		pinValue(t, filepath.Join(dir, all[i].name), value)
	}
}

// pinValue pins a map that has the value.
func pinValue(t *testing.T, path string, value []byte) {
	t.Helper()
	m, err := newMap(nil, "ft_test", len(value))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if err := m.(hostMap).Put(uint32(0), value); err != nil {
		t.Fatal(err)
	}
	if err := m.Pin(path); err != nil {
		t.Fatal(err)
	}
}

// layoutOf returns the layout of pins.
func layoutOf(t *testing.T, dir string) int {
	t.Helper()
	m := newMaps()
	defer m.close()
	g, err := m.adopt(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	return g.layout
}

// Every count of pins of layout 10 goes on in its slot, under its owner and its cookie, and every rule counts. It does so
// where an earlier conversion was killed before its commit, which leaves a second map. A start that refuses the pins leaves
// their layout.
func TestPinsOfLayout10KeepCountsAndRules(t *testing.T) {
	dir := pinDir(t)
	pinRecorded(t, dir)
	if _, err := Open(Options{MaxRules: 1 << 17, PinDir: dir}); !errors.Is(err, ErrIncompatible) {
		t.Fatalf("Open with more rules than the pins hold: %v, want ErrIncompatible", err)
	}
	if got := layoutOf(t, dir); got != 10 {
		t.Fatalf("the refused pins have layout %d, want 10", got)
	}
	before := recordsOf(t, dir)
	pinValue(t, filepath.Join(dir, convertedPin), make([]byte, 4096))

	dp := openTest(t, Options{MaxRules: 256, PinDir: dir})
	if got := layoutOf(t, dir); got != metaLayout {
		t.Errorf("the pins have layout %d, want %d", got, metaLayout)
	}
	names, err := PinsIn(dir)
	if want := []string{"counters", "entries", "ledger", "meta", "ranks", "slots", "tree"}; err != nil || !slices.Equal(names, want) {
		t.Errorf("pins %v, %v; want %v", names, err, want)
	}
	after := make(map[uint32]record)
	for _, c := range dp.Counters() {
		if !c.Adopted {
			t.Errorf("counter %d is a new one", c.ID)
		}
		after[c.ID] = record{c.Owner, c.Cookie}
	}
	if !reflect.DeepEqual(before, after) || len(after) != 46 {
		t.Errorf("owners and cookies %v, before the conversion %v", after, before)
	}
	want := map[uint32]Pair{0: {20, 1480}, 1: {40, 2960}, 2: {60, 4440}, 3: {80, 5920}, 4: {120, 8880}, 5: {100, 7400}, 9: {140, 10360}}
	for id := range after {
		if got := readOne(t, dp, id); got != want[id] {
			t.Errorf("counter %d stands at %+v, want %+v", id, got, want[id])
		}
	}

	// Counters 0 and 5 count by trees, 5 only on the interface v0, and 9 counts by a hash.
	port, err := dp.Port("v0")
	if err != nil || port != 1 {
		t.Errorf("interface v0 has the number %d, %v; want 1", port, err)
	}
	p := program(t, dp, HookIngress, port)
	for _, one := range []struct {
		id           uint32
		sport, dport uint16
	}{{0, 4000, 53}, {5, 4000, 77}, {9, 4003, 9000}} {
		runFrame(t, p, udp4(0x0a000002, 0x0a000001, one.sport, one.dport, 100))
		if got := readOne(t, dp, one.id).Packets; got != want[one.id].Packets+1 {
			t.Errorf("counter %d counted %d packets behind the conversion, want 1", one.id, got-want[one.id].Packets)
		}
	}

	// The wider records hold what comes later.
	last := mustCounter(t, dp, "last")
	if n, err := dp.Port("eth1023"); err != nil || n == 0 {
		t.Errorf("an interface more has the number %d, %v", n, err)
	}
	if err := dp.Close(); err != nil {
		t.Fatal(err)
	}
	dp = openTest(t, Options{MaxRules: 256, PinDir: dir})
	if c, err := dp.AllocCounter("last"); err != nil || c.ID != last || !c.Adopted {
		t.Errorf("a later start finds %+v, %v; want counter %d adopted", c, err, last)
	}
	if got := readOne(t, dp, 0).Packets; got != 21 {
		t.Errorf("a later start reads %d packets, want 21", got)
	}
}

// record is what a meta map has of a counter.
type record struct {
	owner  string
	cookie uint64
}

// recordsOf reads the counters of pins of layout 10.
func recordsOf(t *testing.T, dir string) map[uint32]record {
	t.Helper()
	m := newMaps()
	defer m.close()
	g, err := m.adopt(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	counters, all := metaOf(m.meta.words, g).counters, make(map[uint32]record)
	for id := range g.counters {
		if r := counterRecord(counters[id*16:][:16]); r.used() {
			all[uint32(id)] = record{r.owner(), r.cookie()}
		}
	}
	return all
}

// A program on a hook counts through the conversion: its link stays, and no packet is missed or counted twice.
func TestProgramsCountThroughConversion(t *testing.T) {
	const packets = 10
	w := testWire(t)
	o := Options{MaxRules: 1024, PinDir: pinDir(t)}
	dp := openTest(t, o)
	id := mustCounter(t, dp, "a")
	mustAdd(t, dp, exact4(0x0a000001, 0x0a000002, 1000, 53, id))
	attach(t, dp, w.Near, AttachOptions{Mode: ModeNative, Ingress: true})
	send := func() { arrive(t, w.Far, packets, udp4(0x0a000001, 0x0a000002, 1000, 53, 100)) }
	send()
	if err := dp.Close(); err != nil {
		t.Fatal(err)
	}

	pinAsLayout10(t, o.PinDir)
	if is, err := OtherBuild(o.PinDir); err != nil || is {
		t.Errorf("pins of layout 10 with the programs of this build: another build: %v, %v", is, err)
	}
	send()
	dp = openTest(t, o)
	send()
	if got := readOne(t, dp, id); got != (Pair{3 * packets, 3 * packets * 100}) {
		t.Errorf("counted %+v, want %d packets", got, 3*packets)
	}
	if a := dp.Attachments(); len(a) != 1 || !a[0].Adopted {
		t.Errorf("attachments %+v, want the one of before", a)
	}
	if got := dp.Stats().Programs; got != 0 {
		t.Errorf("%d programs loaded, want none: the attached one is of this build", got)
	}
}

// pinAsLayout10 gives pins a meta map of layout 10.
func pinAsLayout10(t *testing.T, dir string) {
	t.Helper()
	m := newMaps()
	defer m.close()
	g, err := m.adopt(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	from := metaOf(m.meta.words, g)
	g.layout = 10
	value := make([]uint64, metaBytes(g)/8)
	to := metaOf(value, g)
	copy(to.header, from.header)
	to.header[1] = 10
	copy(to.secret, from.secret)
	copy(to.tuples, from.tuples)
	copy(to.ports, from.ports)
	copy(to.loaded, from.loaded)
	copy(to.dir, from.dir)
	for id := range g.counters {
		copy(to.counters[id*16:][:16], from.counter(uint32(id)))
	}
	path := filepath.Join(dir, "meta")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	pinValue(t, path, bytesOf(value))
}
