package shm

import (
	"sync/atomic"
	"testing"
)

var sink uint64

//go:noinline
func loadN(c *HandleCounter, n int) (t uint64) {
	for range n {
		v, err := c.Load()
		if err != nil {
			return 0
		}
		t += v.Packets + v.Bytes + uint64(v.SampledAt)
	}
	return t
}

//go:noinline
func bareN(x, y, z *uint64, n int) (t uint64) {
	for range n {
		t += atomic.LoadUint64(x) + atomic.LoadUint64(y) + atomic.LoadUint64(z)
	}
	return t
}

func BenchmarkLoad(b *testing.B) {
	w, r := heapMirror(b, 64, 1, 0, Options{})
	for _, latency := range []bool{false, true} {
		c := mustCounter(b, r, mustAdd(b, w, Entry{Name: "c", Latency: latency}))
		b.Run(map[bool]string{false: "block", true: "record"}[latency], func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				sink = loadN(&c, 1000)
			}
		})
		if err := w.Remove(c.Handle()); err != nil {
			b.Fatal(err)
		}
	}
	b.Run("floor", func(b *testing.B) {
		var x [3]uint64
		for b.Loop() {
			sink = bareN(&x[0], &x[1], &x[2], 1000)
		}
	})
}

func BenchmarkPublishBlock(b *testing.B) {
	w, _ := heapMirror(b, 64, 0, 0, Options{})
	addN(b, w, 64, false)
	var same, spread, dst Block
	for i := range same {
		same[i] = Value{uint64(i), uint64(i), 1e9}
		spread[i] = Value{uint64(i), uint64(i), 1e9 + int64(i)}
	}
	w.BeginCycle()
	defer w.EndCycle(1)
	b.Run("same-time", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			w.PublishBlock(0, &same)
		}
	})
	b.Run("spread", func(b *testing.B) {
		for b.Loop() {
			w.PublishBlock(0, &spread)
		}
	})
	b.Run("floor", func(b *testing.B) {
		for b.Loop() {
			copy(dst[:], same[:])
		}
	})
}

func BenchmarkSnapshot16k(b *testing.B) {
	w, r := heapMirror(b, 16384, 0, 0, Options{})
	addN(b, w, 16384, false)
	w.BeginCycle()
	for i := range 256 {
		var v Block
		for j := range v {
			v[j] = Value{1, 2, 3}
		}
		w.PublishBlock(i, &v)
	}
	w.EndCycle(Now())
	var s Snapshot
	b.Run("snapshot", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := r.Snapshot(&s); err != nil || !s.SameCycle {
				b.Fatal(err)
			}
		}
	})
	b.Run("floor", func(b *testing.B) {
		src, dst := make([]Value, 16384), make([]Value, 16384)
		for i := range src {
			src[i].Packets = uint64(i)
		}
		for b.Loop() {
			copy(dst, src)
		}
	})
}

func BenchmarkPublishRecord(b *testing.B) {
	w, _ := heapMirror(b, 64, 1, 1024, Options{})
	h := mustAdd(b, w, Entry{Name: "c", Latency: true})
	w.BeginCycle()
	defer w.EndCycle(1)
	b.Run("record", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			w.PublishRecord(h.Index, Value{1, 2, 3})
		}
	})
	b.Run("history", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			w.AppendHistory(h, Value{1, 2, 3})
		}
	})
}

func BenchmarkNow(b *testing.B) {
	for b.Loop() {
		sink += uint64(Now())
	}
}
