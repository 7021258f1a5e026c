//go:build cgo

package ibv

import (
	"errors"
	"slices"
	"syscall"
	"testing"

	"github.com/flowtally/flowtally/internal/lab/frame"
	"github.com/flowtally/flowtally/probe"
)

// statement is a sentence of a manual page about behavior, and the code that shows it.
type statement struct {
	at    string // reference and line
	says  string
	env   []string // of the library
	shows func(t *testing.T, b *bench)
}

// userSpace are the statements of the references that the kernel does not see: libmlx5 alone returns their errno, and it
// fails by no order of ours.
var userSpace = map[string]string{
	"000:105": "attaching makes no call of the kernel, and libmlx5 has memory enough",
}

// Reference 000 is ibv_attach_counters_point_flow(3), 001 ibv_create_counters(3), and 002
// ibv_read_counters(3). Over the releases TestKernelFlowsFollowTheirManualPages shows them.
func TestFlowCountersFollowTheirManualPages(t *testing.T) {
	libs, wire := softLibs(t), newWire(t)
	for _, s := range slices.Concat(attachStatements, createStatements, readStatements) {
		t.Run(s.at, func(t *testing.T) {
			t.Log(s.says)
			s.shows(t, newBenchOver(t, wire, libs.Shim, s.env...))
		})
	}
}

// wantErrno checks that the error is errno, and that it names the verb and the device.
func wantErrno(t *testing.T, err error, verb string, errno syscall.Errno) {
	t.Helper()
	var e *Error
	if !errors.As(err, &e) || e.Errno != errno || e.Verb != verb || e.Device != device() && e.Device != "efa_0" {
		t.Errorf("got %v, want %v of %s", err, errno, verb)
	}
}

// frame100 is 100 bytes to the device.
func frame100(b *bench) []byte {
	return frame.Sized(100, b.eth(), frame.IPv4{Src: frame.Addr("192.0.2.1"), Dst: frame.Addr("192.0.2.2")}, frame.UDP{Src: 1, Dst: 2})
}

var attachStatements = []statement{
	{"000:26", "Counters object will start collecting values after it is bound to the verb object resource.", nil,
		func(t *testing.T, b *bench) {
			n := b.counters(both...)
			b.send(frame100(b), 5)
			b.flow(n, b.toUs())
			b.wants(n, 0, 0)
			b.send(frame100(b), 3)
			b.wants(n, 3, 300)
		}},
	{"000:29", "A static attach can be created when NULL is provided instead of the reference to the verbs object.", nil,
		func(t *testing.T, b *bench) {
			n := b.counters()
			b.check(n.Attach(CounterAttach{CounterPackets, 0}))
		}},
	{"000:31", "This counters object will only start collecting values after it is bound to the verbs resource, for flow this is when referencing the counters handle when creating a flow.", nil,
		func(t *testing.T, b *bench) {
			n, other := b.counters(both...), b.counters(both...)
			b.flow(other, b.toUs())
			b.send(frame100(b), 4)
			b.wants(other, 4, 400)
			wantErrno(t, n.Read(make([]uint64, 2), 0), "ibv_read_counters", syscall.EINVAL) // no flow names it
		}},
	{"000:36", "Once an ibv_counters is bound statically to a verbs resource, no additional attach is allowed till the counter object is not bound to any verb object.", nil,
		func(t *testing.T, b *bench) {
			n := b.counters(CounterAttach{CounterPackets, 0})
			first, second := b.flow(n, b.toUs()), b.flow(n, b.toUs(), IPv4Spec{})
			err := n.Attach(CounterAttach{CounterBytes, 1})
			wantErrno(t, err, "ibv_attach_counters_point_flow", syscall.EBUSY)
			if !errors.Is(err, ErrBusy) {
				t.Errorf("%v is not ErrBusy", err)
			}
			b.check(first.Close())
			wantErrno(t, n.Attach(CounterAttach{CounterBytes, 1}), "ibv_attach_counters_point_flow", syscall.EBUSY)
			b.check(second.Close())
			b.check(n.Attach(CounterAttach{CounterBytes, 1}))
		}},
	{"000:40", "The argument counter_desc specifies which counter value should be collected.", nil,
		func(t *testing.T, b *bench) {
			packets, bytes := b.counters(CounterAttach{CounterPackets, 0}), b.counters(CounterAttach{CounterBytes, 0})
			b.flow(packets, b.toUs())
			// After DONT_TRAP, packets continue to lower priorities, but not to equal ones.
			b.flowAttr(FlowAttr{Flags: FlowDontTrap, Priority: 1, Specs: []Spec{b.toUs(), CountSpec{Counters: bytes}}})
			b.send(frame100(b), 6)
			b.wants(packets, 6)
			b.wants(bytes, 600)
		}},
	{"000:44", "Supported capabilities of specific counter_desc values per verbs object can be tested by checking the return value for success or ENOTSUP errno.", nil,
		func(t *testing.T, b *bench) {
			n := b.counters(both...)
			err := n.Attach(CounterAttach{CounterBytes + 1, 2})
			wantErrno(t, err, "ibv_attach_counters_point_flow", syscall.ENOTSUP)
			if !errors.Is(err, probe.ErrNotSupported) {
				t.Errorf("%v does not answer a probe", err)
			}
		}},
	{"000:48", "Attaching a counters handle to multiple objects of the same type will accumulate the values into a single index.", nil,
		func(t *testing.T, b *bench) {
			n := b.counters(both...)
			for port := range uint16(3) {
				b.flow(n, UDPSpec{Val: TCPUDPFilter{DstPort: 7000 + port}, Mask: TCPUDPFilter{DstPort: 0xffff}})
			}
			for port := range uint16(4) { // no flow matches the fourth
				b.send(frame.Sized(100, b.eth(), frame.IPv4{Src: frame.Addr("192.0.2.1"), Dst: frame.Addr("192.0.2.2")}, frame.UDP{Src: 1, Dst: 7000 + port}), 2)
			}
			b.wants(n, 6, 600)
		}},
	{"000:52", "Setting the index more than once with different or same counter_desc will aggregate the values from all relevant counters into the relevant index location.", nil,
		func(t *testing.T, b *bench) {
			n := b.counters(CounterAttach{CounterPackets, 0}, CounterAttach{CounterPackets, 0}, CounterAttach{CounterPackets, 1}, CounterAttach{CounterBytes, 1})
			b.flow(n, b.toUs())
			b.send(frame100(b), 5)
			b.wants(n, 5+5, 5+500)
		}},
	{"000:57", "The runtime values of counters can be read from the hardware by calling ibv_read_counters().", nil,
		func(t *testing.T, b *bench) {
			n := b.counters(both...)
			b.flow(n, b.toUs())
			for i := range uint64(4) {
				b.wants(n, i, i*100)
				b.send(frame100(b), 1)
			}
		}},
	{"000:84", "index: Desired location of the specific counter at the counters object.", nil,
		func(t *testing.T, b *bench) {
			n := b.counters(CounterAttach{CounterBytes, 1}, CounterAttach{CounterPackets, 3})
			b.flow(n, b.toUs())
			b.send(frame100(b), 2)
			b.wants(n, 0, 200, 0, 2)
		}},
	{"000:88", "comp_mask: Bitmask specifying what fields in the structure are valid.", nil,
		func(t *testing.T, b *bench) {
			n := b.counters()
			if errno := b.lib.v.attachCounters(n.h, CounterAttach{}, 0, 1); errno != syscall.EOPNOTSUPP {
				t.Errorf("a field that does not exist: %v, want EOPNOTSUPP", errno)
			}
		}},
	{"000:92", "ibv_attach_counters_point_flow() returns 0 on success, or the value of errno on failure (which indicates the failure reason).",
		[]string{"FAIL", "ibv_attach_counters_point_flow=EACCES@2"},
		func(t *testing.T, b *bench) {
			n := b.counters(CounterAttach{CounterPackets, 0})
			want := syscall.EACCES
			if inRoot() { // the kernel does not see the call, so a real failure takes the place of the fault
				b.flow(n, b.toUs())
				want = syscall.EBUSY
			}
			wantErrno(t, n.Attach(CounterAttach{CounterBytes, 1}), "ibv_attach_counters_point_flow", want)
		}},
	{"000:99", "ENOTSUP: counter_desc is not supported on the requested object. (An existing flow is one: no provider attaches to it.)", nil,
		func(t *testing.T, b *bench) {
			f := b.flow(b.counters(both...), b.toUs())
			n := b.counters()
			if errno := b.lib.v.attachCounters(n.h, CounterAttach{}, f.h, 0); errno != syscall.ENOTSUP {
				t.Errorf("attaching to a flow that lives: %v, want ENOTSUP", errno)
			}
		}},
	{"000:102", "EBUSY: the counter object is already bound to a flow, additional attach calls is not allowed (valid for static attach only).", nil,
		func(t *testing.T, b *bench) {
			n := b.counters(both...)
			f := b.flow(n, b.toUs())
			wantErrno(t, n.Attach(both[0]), "ibv_attach_counters_point_flow", syscall.EBUSY)
			b.check(f.Close())
			b.check(n.Attach(both[0]))
		}},
	{"000:105", "ENOMEM: not enough memory.", []string{"FAIL", "ibv_attach_counters_point_flow=ENOMEM"},
		func(t *testing.T, b *bench) {
			wantErrno(t, b.counters().Attach(both[0]), "ibv_attach_counters_point_flow", syscall.ENOMEM)
		}},
	{"000:109", "Counter values in each index location are cleared upon creation when calling ibv_create_counters(). Attaching counters points will only increase these values accordingly.", nil,
		func(t *testing.T, b *bench) {
			n := b.counters(both...)
			f := b.flow(n, b.toUs())
			b.send(frame100(b), 3)
			b.wants(n, 3, 300)
			b.check(f.Close())
			// Cleared when the object was made, not when a flow is.
			b.flow(n, b.toUs())
			b.send(frame100(b), 1)
			b.wants(n, 4, 400)
			fresh := b.counters(both...)
			b.flow(fresh, b.toUs(), IPv4Spec{})
			b.wants(fresh, 0, 0)
		}},
}

var createStatements = []statement{
	{"001:25", "ibv_create_counters() creates a new counters handle for the RDMA device context.", nil,
		func(t *testing.T, b *bench) {
			n := b.counters()
			if err := b.ctx.Close(); !errors.Is(err, ErrBusy) {
				t.Errorf("the context does not know its counters: %v", err)
			}
			b.check(n.Close())
		}},
	{"001:31", "For example attach an ibv_counters statically to a Flow (struct ibv_flow) during creation of a new Flow by calling ibv_create_flow().", nil,
		func(t *testing.T, b *bench) {
			n := b.counters(both...)
			b.flow(n, b.toUs())
			b.send(frame100(b), 1)
			b.wants(n, 1, 100)
		}},
	{"001:34", "Counters are cleared upon creation and values will be monotonically increasing.", nil,
		func(t *testing.T, b *bench) {
			n := b.counters(both...)
			b.flow(n, b.toUs())
			last := b.read(n, 2)
			if last[0] != 0 || last[1] != 0 {
				t.Errorf("a new object reads %d", last)
			}
			for range 10 {
				b.send(frame100(b), 7)
				now := b.read(n, 2)
				if now[0] < last[0]+7 || now[1] < last[1]+700 {
					t.Fatalf("%d after %d", now, last)
				}
				last = now
			}
		}},
	{"001:37", "ibv_destroy_counters() releases the counters handle, user should detach the counters object before destroying it.", nil,
		func(t *testing.T, b *bench) {
			n := b.counters(both...)
			f := b.flow(n, b.toUs())
			if err := n.Close(); !errors.Is(err, ErrBusy) {
				t.Errorf("destroying counters that a flow names: %v", err)
			}
			if errno := b.lib.v.destroyCounters(n.h); errno != syscall.EBUSY { // past our own check
				t.Errorf("the library destroys counters that a flow names: %v", errno)
			}
			b.send(frame100(b), 1)
			b.wants(n, 1, 100)
			b.check(f.Close())
			b.check(n.Close())
		}},
	{"001:55", "comp_mask: Bitmask specifying what fields in the structure are valid.", nil,
		func(t *testing.T, b *bench) {
			h, errno := b.lib.v.createCounters(b.ctx.h, 1)
			if errno == 0 {
				t.Errorf("a field that does not exist was taken: %#x", h)
			}
		}},
	{"001:60", "ibv_create_counters() returns a pointer to the allocated ibv_counters object, or NULL if the request fails (and sets errno to indicate the failure reason).",
		[]string{"FAIL", "ibv_create_counters=EAGAIN"},
		func(t *testing.T, b *bench) {
			n, err := b.ctx.CreateCounters()
			if wantErrno(t, err, "ibv_create_counters", syscall.EAGAIN); n != nil {
				t.Error("an object beside the error")
			}
		}},
	{"001:64", "ibv_destroy_counters() returns 0 on success, or the value of errno on failure (which indicates the failure reason).",
		[]string{"FAIL", "ibv_destroy_counters=EBUSY@1-1"},
		func(t *testing.T, b *bench) {
			n := must(b.ctx.CreateCounters())(t)
			wantErrno(t, n.Close(), "ibv_destroy_counters", syscall.EBUSY)
			b.check(n.Close()) // after EBUSY the call can be repeated
		}},
	{"001:71", "EOPNOTSUPP: ibv_create_counters() is not currently supported on this device.", []string{"WITHOUT", "counters"},
		func(t *testing.T, b *bench) {
			_, err := b.ctx.CreateCounters()
			if wantErrno(t, err, "ibv_create_counters", syscall.EOPNOTSUPP); !errors.Is(err, probe.ErrNotSupported) {
				t.Errorf("%v does not answer a probe", err)
			}
		}},
	{"001:72", "(ENOSYS may sometimes be returned by old versions of libibverbs).", []string{"FAIL", "ibv_create_counters=ENOSYS"},
		func(t *testing.T, b *bench) {
			_, err := b.ctx.CreateCounters()
			if wantErrno(t, err, "ibv_create_counters", syscall.ENOSYS); !errors.Is(err, probe.ErrNotSupported) {
				t.Errorf("%v does not answer a probe", err)
			}
		}},
	{"001:75", "ENOMEM: ibv_create_counters() could not create ibv_counters object, not enough memory.", []string{"FAIL", "ibv_create_counters=ENOMEM"},
		func(t *testing.T, b *bench) {
			_, err := b.ctx.CreateCounters()
			wantErrno(t, err, "ibv_create_counters", syscall.ENOMEM)
		}},
	{"001:78", "EINVAL: invalid parameter supplied ibv_destroy_counters().", []string{"FAIL", "ibv_destroy_counters=EINVAL@1-1"},
		func(t *testing.T, b *bench) {
			n := must(b.ctx.CreateCounters())(t)
			wantErrno(t, n.Close(), "ibv_destroy_counters", syscall.EINVAL)
			b.check(n.Close()) // abandoned: it is not asked for again
			b.abandons = true
		}},
}

var readStatements = []statement{
	{"002:22", "ibv_read_counters() returns the values of the chosen counters into counters_value array of which can accumulate ncounters.", nil,
		func(t *testing.T, b *bench) {
			n := b.counters(both...)
			b.flow(n, b.toUs())
			b.send(frame100(b), 9)
			b.wants(n, 9, 900)
		}},
	{"002:23", "The values are filled according to the configuration defined by the user in the ibv_attach_counters_point_xxx functions.", nil,
		func(t *testing.T, b *bench) {
			n := b.counters(CounterAttach{CounterBytes, 0}, CounterAttach{CounterPackets, 1})
			b.flow(n, b.toUs())
			b.send(frame100(b), 9)
			b.wants(n, 900, 9)
		}},
	{"002:23 before", "(...) defined by the user: before that is bound to a flow there is nothing to read.", nil,
		func(t *testing.T, b *bench) {
			wantErrno(t, b.counters(both...).Read(make([]uint64, 2), 0), "ibv_read_counters", syscall.EINVAL)
		}},
	{"002:36", "ncounters: Number of counters to fill.", nil,
		func(t *testing.T, b *bench) {
			n := b.counters(both...)
			b.flow(n, b.toUs())
			b.send(frame100(b), 2)
			for short := range 2 {
				wantErrno(t, n.Read(make([]uint64, short), 0), "ibv_read_counters", syscall.EINVAL)
			}
			v := []uint64{1, 1, 1, 1, 1}
			b.check(n.Read(v[:4], 0))
			if want := []uint64{2, 200, 0, 0, 1}; !slices.Equal(v, want) {
				t.Errorf("a longer array reads %d, want %d", v, want)
			}
		}},
	{"002:41", "IBV_READ_COUNTERS_ATTR_PREFER_CACHED: Will prefer reading the values from driver cache, else it will do volatile hardware access which is the default.", nil,
		func(t *testing.T, b *bench) {
			n := b.counters(both...)
			b.flow(n, b.toUs())
			b.send(frame100(b), 2)
			v := make([]uint64, 2)
			b.check(n.Read(v, ReadCountersPreferCached))
			if v[0] > 2 || v[1] != v[0]*100 { // may be old, may not be made up
				t.Errorf("cached values %d", v)
			}
			b.wants(n, 2, 200)
		}},
	{"002:39", "flags: Use enum ibv_read_counters_flags.", nil,
		func(t *testing.T, b *bench) {
			n := b.counters(both...)
			b.flow(n, b.toUs())
			wantErrno(t, n.Read(make([]uint64, 2), 1<<1), "ibv_read_counters", syscall.EINVAL)
		}},
	{"002:47", "ibv_read_counters() returns 0 on success, or the value of errno on failure (which indicates the failure reason).",
		[]string{"FAIL", "ibv_read_counters=EIO@2-2"},
		func(t *testing.T, b *bench) {
			n := b.counters(both...)
			b.flow(n, b.toUs())
			b.wants(n, 0, 0)
			wantErrno(t, n.Read(make([]uint64, 2), 0), "ibv_read_counters", syscall.EIO)
			b.wants(n, 0, 0)
		}},
	{"002:57", "This example demonstrates the use of counters which are attached statically with the creation of a new flow. The counters are read from hardware periodically, and finally all resources are released.", nil,
		func(t *testing.T, b *bench) {
			n := must(b.ctx.CreateCounters())(t)
			b.check(n.Attach(CounterAttach{CounterPackets, 0}))
			b.check(n.Attach(CounterAttach{CounterBytes, 1}))
			f := must(b.qp.CreateFlow(FlowAttr{Type: FlowAttrNormal, Port: 1, Specs: []Spec{b.toUs(), CountSpec{Counters: n}}}))(t)
			for i := range uint64(5) {
				b.wants(n, i, 100*i)
				b.send(frame100(b), 1)
			}
			b.check(f.Close())
			b.check(n.Close())
		}},
	{"002:155", "destroy flow and detach counters", nil,
		func(t *testing.T, b *bench) {
			n := b.counters(both...)
			f := b.flow(n, b.toUs())
			b.check(f.Close())
			b.check(n.Attach(CounterAttach{CounterPackets, 2})) // not bound any more
		}},
	{"002:158", "destroy counters handle", nil,
		func(t *testing.T, b *bench) {
			n := b.counters()
			b.check(n.Close())
			if err := n.Read(make([]uint64, 2), 0); !errors.Is(err, ErrClosed) {
				t.Errorf("reading what was destroyed: %v", err)
			}
		}},
}
