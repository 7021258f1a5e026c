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
	libs := softLibs(t)
	b := newData(t, newWire(t), Options{Library: libs.Verbs, MLX5: libs.MLX5})
	b.cq = must(b.ctx.CreateCQ(CQOptions{CQE: 10}))(t)
	b.closes(b.cq)
	ring := must(b.cq.MLX5Ring())(t)
	again := must(b.cq.MLX5Ring())(t)
	if ring.CQESize != 64 || ring.CQECount != 16 || len(ring.Buf) != 16*64 || ring.CQN == 0 || &ring.Buf[0] != &again.Buf[0] || ring.DBRec != again.DBRec {
		t.Fatalf("a ring of %d entries of %d in %d bytes, number %d", ring.CQECount, ring.CQESize, len(ring.Buf), ring.CQN)
	}
	const invalid, opcode = 15, 4
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
		if e := entry(n); e[63]>>opcode != 0 || int(e[63]&1) != n/16&1 || binary.BigEndian.Uint32(e[56:])&0xffffff != x.Number() {
			t.Fatalf("completion %d: op_own %#x of %#x", n, e[63], e[56:60])
		}
		if n%2 == 0 {
			b.succeed(1)
		} else { // a caller that walks the ring sets the index itself, and then has Poll free the request
			b.succeed(1)
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
	for _, c := range []struct{ name, mlx5, without string }{
		{"no libmlx5", filepath.Join(t.TempDir(), "none"), ""},
		{"no ring", libs.MLX5, "cq_ring"},
		{"a device of another driver", libs.MLX5, "devx"},
	} {
		b := newData(t, wire, Options{Library: libs.Verbs, MLX5: c.mlx5}, "WITHOUT", c.without)
		ring, err := b.cq.MLX5Ring()
		if !errors.Is(err, probe.ErrNotSupported) || ring.Buf != nil {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	own := copyLibrary(t, libs.MLX5)
	b := newData(t, wire, Options{Library: libs.Verbs, MLX5: own}, "FAIL", "mlx5dv_init_obj=EIO@1-1")
	q := must(b.ctx.CreateCQ(CQOptions{}))(t)
	_, err := q.MLX5Ring()
	wantErrno(t, err, "mlx5dv_init_obj", syscall.EIO)
	if _, err := q.MLX5Ring(); err != nil || !loaded(t, own) {
		t.Errorf("the second time: %v, or its library is not there", err)
	}
	b.check(q.Close())
	if loaded(t, own) {
		t.Error("libmlx5 is there, its ring is not")
	}
	if _, err := q.MLX5Ring(); !errors.Is(err, ErrClosed) {
		t.Errorf("of a closed queue: %v", err)
	}
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

// The cases are a libmlx5 without mlx5dv_create_cq, and a device of another driver.
func TestMLX5CQIsRefusedWithoutMLX5(t *testing.T) {
	libs, wire := softLibs(t), newWire(t)
	b := newData(t, wire, Options{Library: libs.Verbs, MLX5: libs.MLX5})
	_, err := b.ctx.CreateMLX5CQ(MLX5CQOptions{})
	wantErrno(t, err, "mlx5dv_create_cq", syscall.ENOSYS)
	b = newData(t, wire, Options{Library: libs.Verbs, MLX5: libs.MLX5}, "WITHOUT", "devx")
	if _, err := b.ctx.CreateMLX5CQ(MLX5CQOptions{}); !errors.Is(err, probe.ErrNotSupported) {
		t.Errorf("a device of another driver: %v", err)
	}
	b = newData(t, wire, Options{Library: libs.Verbs, MLX5: filepath.Join(t.TempDir(), "none")})
	if _, err := b.ctx.CreateMLX5CQ(MLX5CQOptions{}); !errors.Is(err, probe.ErrNotSupported) {
		t.Errorf("without libmlx5: %v", err)
	}
}
