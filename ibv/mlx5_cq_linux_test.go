//go:build cgo

package ibv

import (
	"encoding/binary"
	"errors"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/flowtally/flowtally/probe"
)

// The doorbell record must show the number of polled entries.
func TestMLX5RingHoldsTheEntriesThatPollReturns(t *testing.T) {
	b := newData(t, newWire(t), Options{})
	b.cq = must(b.ctx.CreateCQ(CQOptions{CQE: 10}))(t)
	b.closes(b.cq)
	ring := must(b.cq.MLX5Ring())(t)
	again := must(b.cq.MLX5Ring())(t)
	if ring.CQESize != 64 || ring.CQECount != 16 || len(ring.Buf) != 16*64 || ring.CQN == 0 || &ring.Buf[0] != &again.Buf[0] || ring.DBRec != again.DBRec {
		t.Fatalf("a ring of %d entries of %d in %d bytes, number %d", ring.CQECount, ring.CQESize, len(ring.Buf), ring.CQN)
	}
	const invalid, opcode = 15, 4 // the device writes entries when it has done the work: poll first
	entry := func(n int) []byte { return ring.Buf[(n%16)*64:][:64] }
	taken := func() uint32 {
		var be [4]byte
		binary.NativeEndian.PutUint32(be[:], *ring.DBRec)
		return binary.BigEndian.Uint32(be[:])
	}
	for n := range 16 {
		if entry(n)[63]>>opcode != invalid {
			t.Errorf("entry %d is somebody's before anything completed", n)
		}
	}
	m := b.region()
	x, _ := b.rc(nil)
	for n := range 40 {
		b.post(x, write(m))
		b.succeed(1)
		if e := entry(n); e[63]>>opcode != 0 || int(e[63]&1) != n/16&1 || binary.BigEndian.Uint32(e[56:])&0xffffff != x.Number() {
			t.Fatalf("completion %d: op_own %#x of %#x", n, e[63], e[56:60])
		}
		if n%2 == 1 { // a caller that walks the ring sets the index itself
			ring.SetConsumerIndex(uint32(n + 1))
		}
		if got := taken(); got != uint32(n+1) {
			t.Fatalf("after %d completions the doorbell record has %d", n+1, got)
		}
	}
	ring.SetConsumerIndex(0xff000001) // the device has 24 bits
	if got := taken(); got != 1 {
		t.Errorf("the doorbell record has %#x", got)
	}
	ring.SetConsumerIndex(40)
}

// The cases are a missing libmlx5, a device of another driver, and a library without rings.
func TestMLX5RingIsRefusedWithoutMLX5(t *testing.T) {
	libs, wire := softLibs(t), newWire(t)
	for _, c := range []struct{ name, device, mlx5, without string }{
		{"no libmlx5", device(), filepath.Join(t.TempDir(), "none"), ""},
		{"no ring", device(), libs.Shim, "cq_ring"},
		{"a device of another driver", "efa_0", "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newLibrary(t, wire, "", "WITHOUT", c.without)
			b.lib.opts.MLX5 = c.mlx5
			b.openDevice(c.device)
			b.queues()
			ring, err := b.cq.MLX5Ring()
			if !errors.Is(err, probe.ErrNotSupported) || ring.Buf != nil {
				t.Errorf("%v", err)
			}
		})
	}
	t.Run("it fails once", func(t *testing.T) {
		b := newData(t, wire, Options{MLX5: libs.Shim}, "FAIL", "mlx5dv_init_obj=EIO@1-1")
		q := must(b.ctx.CreateCQ(CQOptions{}))(t)
		_, err := q.MLX5Ring()
		wantErrno(t, err, "mlx5dv_init_obj", syscall.EIO)
		if _, err := q.MLX5Ring(); err != nil {
			t.Errorf("the second time: %v", err)
		}
		b.check(q.Close())
		if _, err := q.MLX5Ring(); !errors.Is(err, ErrClosed) {
			t.Errorf("of a closed queue: %v", err)
		}
	})
}

func TestMLX5RingOfImpossibleNumbersIsRefused(t *testing.T) {
	var dbrec uint32
	for _, c := range []struct {
		ring MLX5CQ
		want bool
	}{
		{MLX5CQ{DBRec: &dbrec, CQESize: 64, CQECount: 1}, true},
		{MLX5CQ{DBRec: &dbrec, CQESize: 128, CQECount: 1 << 22}, true},
		{MLX5CQ{CQESize: 64, CQECount: 1}, false},
		{MLX5CQ{DBRec: &dbrec, CQESize: 64}, false},
		{MLX5CQ{DBRec: &dbrec, CQESize: 64, CQECount: 3}, false},
		{MLX5CQ{DBRec: &dbrec, CQESize: 32, CQECount: 4}, false},
	} {
		if got := c.ring.sound(); got != c.want {
			t.Errorf("%+v: %v", c.ring, got)
		}
	}
}

// The cases are a libmlx5 without mlx5dv_create_cq, a device of another driver, and no libmlx5.
func TestMLX5CQIsRefusedWithoutMLX5(t *testing.T) {
	wire := newWire(t)
	for _, c := range []struct {
		name, device, mlx5 string
		want               error
	}{
		{"no mlx5dv_create_cq", device(), stubLibrary(t, libmlx5WithoutCQ), syscall.ENOSYS},
		{"another driver", "efa_0", "", probe.ErrNotSupported},
		{"no libmlx5", device(), filepath.Join(t.TempDir(), "none"), probe.ErrNotSupported},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newLibrary(t, wire, "")
			b.lib.opts.MLX5 = c.mlx5
			b.openDevice(c.device)
			_, err := b.ctx.CreateMLX5CQ(MLX5CQOptions{})
			if !errors.Is(err, c.want) {
				t.Errorf("%v, want %v", err, c.want)
			}
			if c.want == syscall.ENOSYS {
				wantErrno(t, err, "mlx5dv_create_cq", syscall.ENOSYS)
			}
		})
	}
}

// libmlx5WithoutCQ has what the binding requires, and takes every device for its own.
const libmlx5WithoutCQ = `
int mlx5dv_is_supported(void *device) { return device != 0; }
#define REQUIRED(name) void *name(void) { return 0; }
REQUIRED(mlx5dv_open_device) REQUIRED(mlx5dv_devx_obj_create) REQUIRED(mlx5dv_devx_obj_query) REQUIRED(mlx5dv_devx_obj_destroy)
REQUIRED(mlx5dv_devx_general_cmd) REQUIRED(mlx5dv_create_flow_matcher) REQUIRED(mlx5dv_destroy_flow_matcher)
REQUIRED(mlx5dv_create_flow)
`
