//go:build releases && cgo

package ibv

import (
	"testing"

	"github.com/flowtally/flowtally/ibv/ibvtest"
	"github.com/flowtally/flowtally/internal/lab/rdmacore"
)

// newRealData is newData over the uverbs kernel in software, with the real libmlx5.
func newRealData(t *testing.T, cqe int) *bench {
	t.Helper()
	b := &bench{t: t}
	b.lib = must(Load(Options{}))(t)
	b.closes(b.lib)
	b.ctx = must(b.lib.Open("mlx5_0"))(t)
	b.closes(b.ctx)
	b.pd = must(b.ctx.AllocPD())(t)
	b.closes(b.pd)
	b.cq = must(b.ctx.CreateCQ(CQOptions{CQE: cqe}))(t)
	b.closes(b.cq)
	return b
}

// TestKernelMLX5QueuePairs: each operation and each error of a queue pair of the real libmlx5.
func TestKernelMLX5QueuePairs(t *testing.T) {
	overKernel(t, ibvtest.Env{}, rdmacore.Suites(), func(t *testing.T) {
		b := newRealData(t, 256)
		m := b.region()
		x, y := b.rc(nil)
		mem := m.Bytes()
		copy(mem, "hello")
		b.postRecv(y, recv(m))
		b.post(x, send(m))
		b.succeed(2)
		if string(mem[2048:2053]) != "hello" {
			t.Errorf("received %q", mem[2048:2053])
		}
		b.post(x, write(m))
		b.succeed(1)
		if string(mem[1024:1029]) != "hello" {
			t.Errorf("written %q", mem[1024:1029])
		}
		copy(mem[1024:], "world")
		b.post(x, read(m))
		b.succeed(1)
		if string(mem[:5]) != "world" {
			t.Errorf("read %q", mem[:5])
		}
	})
}
