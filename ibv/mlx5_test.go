package ibv

import (
	"encoding/binary"
	"errors"
	"log/slog"
	"strings"
	"syscall"
	"testing"

	"github.com/flowtally/flowtally/probe"
)

// fakeMLX5 is a libmlx5 whose results a test sets.
type fakeMLX5 struct {
	mlx5
	old      bool // before counter offsets
	quiet    bool // allocates nothing
	status   prmStatus
	errno    syscall.Errno
	commands []uint16 // their opcodes
	asked    queryFlowCounterIn
	flow     struct {
		counters          handle
		offset            uint32
		defaultMiss, drop bool
	}
	destroyed, unloaded int
}

func (f *fakeMLX5) offsets() bool         { return !f.old }
func (f *fakeMLX5) supported(handle) bool { return true }
func (f *fakeMLX5) unload()               { f.unloaded++ }

// answer fills out with a status and, for each 64-bit word behind it, its number.
func (f *fakeMLX5) answer(in, out []byte) syscall.Errno {
	f.commands = append(f.commands, binary.BigEndian.Uint16(in))
	out[0] = f.status.Status
	binary.BigEndian.PutUint32(out[4:], f.status.Syndrome)
	for i := prmOutSize; i+8 <= len(out); i += 8 {
		binary.BigEndian.PutUint64(out[i:], uint64(i-prmOutSize)/8)
	}
	return f.errno
}

func (f *fakeMLX5) generalCmd(_ handle, in, out []byte) syscall.Errno { return f.answer(in, out) }
func (f *fakeMLX5) queryObject(_ handle, in, out []byte) syscall.Errno {
	if !f.quiet {
		decodePRM(in, &f.asked)
	}
	return f.answer(in, out)
}
func (f *fakeMLX5) createObject(_ handle, in, out []byte) (handle, syscall.Errno) {
	errno := f.answer(in, out)
	binary.BigEndian.PutUint32(out[8:], 0x8000)
	if errno != 0 {
		return 0, errno
	}
	return 7, 0
}
func (f *fakeMLX5) destroyObject(handle) syscall.Errno { f.destroyed++; return f.errno }
func (f *fakeMLX5) createMatcher(handle, []byte, uint8, uint16, FlowFlags) (handle, syscall.Errno) {
	return 8, f.errno
}
func (f *fakeMLX5) destroyMatcher(handle) syscall.Errno { return f.errno }
func (f *fakeMLX5) createFlow(_ handle, _ []byte, counters handle, offset uint32, defaultMiss, drop bool) (handle, syscall.Errno) {
	if f.old && offset > 0 {
		return 0, syscall.EOPNOTSUPP
	}
	f.flow.counters, f.flow.offset, f.flow.defaultMiss, f.flow.drop = counters, offset, defaultMiss, drop
	return 9, f.errno
}

// fakeVerbs destroys the objects made by DevX.
type fakeVerbs struct{ verbs }

func (fakeVerbs) destroyFlow(handle) syscall.Errno { return 0 }
func (fakeVerbs) closeDevice(handle) syscall.Errno { return 0 }

// fakeDevX is an open DevX over the fake, with bulks of 128 to 2048.
func fakeDevX(t *testing.T, m *fakeMLX5) *DevX {
	t.Helper()
	lib := &Library{v: fakeVerbs{}, log: slog.New(slog.DiscardHandler)}
	c := &Context{lib: lib, v: lib.v}
	c.kind, c.device, c.h = "context", "mlx5_0", 1
	d := &DevX{ctx: c, m: m, caps: counterCaps{bulkMask: 0x1f}}
	if err := d.init("DevX context", c.device, func() (handle, error) { return 2, nil }, &c.object); err != nil {
		t.Fatal(err)
	}
	return d
}

func TestFlowCountersQueryIsOneCommand(t *testing.T) {
	m := &fakeMLX5{}
	d := fakeDevX(t, m)
	for _, c := range []struct {
		name         string
		alloc, query int
		asks         uint32 // num_of_counters; 0 is a single counter's query
	}{
		{"one", 1, 1, 0},
		{"the first of a bulk", 2, 1, 4},
		{"a whole bulk", 128, 128, 128},
		{"a part, in multiples of four", 128, 5, 8},
		{"the largest", MaxFlowCounters, MaxFlowCounters, MaxFlowCounters},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, err := d.AllocFlowCounters(c.alloc)
			if err != nil {
				t.Fatal(err)
			}
			m.commands, m.asked = nil, queryFlowCounterIn{}
			got := make([]FlowCount, c.query)
			if err := f.Query(got); err != nil {
				t.Fatal(err)
			}
			for i, v := range got {
				if want := (FlowCount{uint64(2 * i), uint64(2*i + 1)}); v != want {
					t.Fatalf("counter %d is %+v, want %+v", i, v, want)
				}
			}
			if want := (queryFlowCounterIn{NumOfCounters: c.asks, FlowCounterID: 0x8000}); m.asked != want || len(m.commands) != 1 {
				t.Errorf("asked %+v in %d commands, want %+v in one", m.asked, len(m.commands), want)
			}
			if err := f.Query(make([]FlowCount, f.Len()+1)); !errors.Is(err, errSize) {
				t.Errorf("more than there are: %v", err)
			}
			if err := f.Close(); err != nil {
				t.Error(err)
			}
			if err := f.Query(got); !errors.Is(err, ErrClosed) {
				t.Errorf("after Close: %v", err)
			}
		})
	}
	f, err := d.AllocFlowCounters(MaxFlowCounters)
	if err != nil {
		t.Fatal(err)
	}
	dst := make([]FlowCount, f.Len())
	m.commands, m.quiet = make([]uint16, 0, 200), true
	if n := testing.AllocsPerRun(100, func() {
		if err := f.Query(dst); err != nil {
			t.Fatal(err)
		}
	}); n > 0 {
		t.Errorf("a query allocates %v times", n)
	}
}

// Some kernels turn a bad status into an errno, others leave the status to the caller. No part of
// the output may be used in either case.
func TestBadFirmwareStatusIsAnErrorWithOrWithoutErrno(t *testing.T) {
	for _, c := range []struct {
		name   string
		errno  syscall.Errno
		status prmStatus
		is     error
		says   string
	}{
		{"in the answer alone", 0, prmStatus{Status: 0x0f, Syndrome: 0xabc}, syscall.EIO, "no resources (status 0xf, syndrome 0xabc)"},
		{"by both", syscall.EACCES, prmStatus{Status: 0x03}, syscall.EACCES, "bad parameter"},
		{"by the errno alone", syscall.EOPNOTSUPP, prmStatus{}, probe.ErrNotSupported, "mlx5dv_devx_obj"},
		{"a status of the future", 0, prmStatus{Status: 0x77}, syscall.EIO, "unknown status (status 0x77"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := &fakeMLX5{}
			d := fakeDevX(t, m)
			good, err := d.AllocFlowCounters(1)
			if err != nil {
				t.Fatal(err)
			}
			m.errno, m.status = c.errno, c.status
			dst := []FlowCount{{Packets: 42, Octets: 43}}
			for verb, err := range map[string]error{"query": good.Query(dst), "alloc": func() error { _, err := d.AllocFlowCounters(1); return err }()} {
				if !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), "mlx5_0") {
					t.Errorf("%s: %v, want %v with %q", verb, err, c.is, c.says)
				}
			}
			if dst[0] != (FlowCount{42, 43}) {
				t.Errorf("an answer that is none was used: %+v", dst[0])
			}
			if made := c.errno == 0; made != (m.destroyed == 1) {
				t.Errorf("%d objects were destroyed", m.destroyed)
			}
			m.errno, m.status = 0, prmStatus{}
			if err := good.Close(); err != nil {
				t.Fatal(err)
			}
			if err := d.Close(); err != nil || m.unloaded != 1 {
				t.Errorf("closing DevX: %v, unloaded %d times: something is still held", err, m.unloaded)
			}
		})
	}
}

func TestDevXObjectsHoldTheirParents(t *testing.T) {
	m := &fakeMLX5{}
	d := fakeDevX(t, m)
	counters, err := d.AllocFlowCounters(2)
	if err != nil {
		t.Fatal(err)
	}
	matcher, err := d.CreateMatcher(MatcherAttr{})
	if err != nil {
		t.Fatal(err)
	}
	flow, err := matcher.CreateFlow(MatchParam{}, FlowActions{Counters: counters, Offset: 3, DefaultMiss: true})
	if err != nil {
		t.Fatal(err)
	}
	if f := m.flow; f.counters != 7 || f.offset != 3 || !f.defaultMiss || f.drop {
		t.Errorf("the flow was made with %+v", f)
	}
	for _, c := range []struct {
		object interface{ Close() error }
		holder string
	}{{d.ctx, "1 DevX context"}, {d, "1 flow counters, 1 matcher"}, {counters, "1 flow"}, {matcher, "1 flow"}} {
		if err := c.object.Close(); !errors.Is(err, ErrBusy) || !strings.Contains(err.Error(), c.holder) {
			t.Errorf("closing it: %v, want busy by %q", err, c.holder)
		}
	}
	for _, o := range []interface{ Close() error }{flow, matcher, counters, d} {
		if err := errors.Join(o.Close(), o.Close()); err != nil {
			t.Error(err)
		}
	}
	if _, err := d.AllocFlowCounters(1); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
	if m.unloaded != 1 {
		t.Errorf("libmlx5 was unloaded %d times", m.unloaded)
	}
}

// Before rdma-core 60 a flow can name an object, but no counter within it.
func TestOldLibraryRefusesCounterOffsets(t *testing.T) {
	m := &fakeMLX5{old: true}
	d := fakeDevX(t, m)
	if d.HasOffsets() {
		t.Error("it has offsets")
	}
	counters, err := d.AllocFlowCounters(2)
	if err != nil {
		t.Fatal(err)
	}
	matcher, err := d.CreateMatcher(MatcherAttr{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := matcher.CreateFlow(MatchParam{}, FlowActions{Counters: counters}); err != nil {
		t.Errorf("the first counter: %v", err)
	}
	_, err = matcher.CreateFlow(MatchParam{}, FlowActions{Counters: counters, Offset: 1})
	if !errors.Is(err, probe.ErrNotSupported) || !strings.Contains(err.Error(), "rdma-core 60") {
		t.Errorf("the second: %v", err)
	}
	other := fakeDevX(t, &fakeMLX5{})
	theirs, err := other.AllocFlowCounters(1)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := matcher.CreateFlow(MatchParam{}, FlowActions{Counters: theirs}); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("counters of another device: %v", err)
	}
}
