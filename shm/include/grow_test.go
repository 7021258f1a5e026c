package include

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/flowtally/flowtally/internal/lab/need"
	"github.com/flowtally/flowtally/internal/lab/times"
	"github.com/flowtally/flowtally/shm"
)

// crowd is a writer whose mirror grows to sixteen segments, a quarter of them records.
// In each cycle n every counter gets the value n.
type crowd struct {
	w       *shm.Writer
	blocks  map[uint32]bool
	records []uint32
	added   int
}

// grow adds counters. A class fills its segment before the other's turn.
func (c *crowd) grow(n int) error {
	for range n {
		latency := c.added/shm.SegmentLen%4 == 3
		h, err := c.w.Add(shm.Entry{Name: fmt.Sprint("c", c.added), Latency: latency})
		if err != nil {
			return err
		}
		c.added++
		if latency {
			c.records = append(c.records, h.Index)
		} else {
			c.blocks[h.Index/shm.BlockLen] = true
		}
	}
	return nil
}

func (c *crowd) cycle() {
	n := c.w.BeginCycle()
	var values shm.Block
	for i := range values {
		values[i] = value(n)
	}
	for b := range c.blocks {
		c.w.PublishBlock(int(b), &values)
	}
	for _, i := range c.records {
		c.w.PublishRecord(i, value(n))
	}
	c.w.EndCycle(shm.Now())
}

// A C reader and a Python reader read while the mirror grows from one segment to sixteen,
// without any call for growth. Each value must be whole, and at least as new as the last
// cycle completed before the read.
func TestCAndPythonReadersWhileTheMirrorGrows(t *testing.T) {
	need.Tool(t, "python3")
	const segments = 16
	program := build(t, "grow")
	path, w := newMirror(t, shm.Options{History: -1})
	c := &crowd{w: w, blocks: map[uint32]bool{}}
	if err := c.grow(1); err != nil {
		t.Fatal(err)
	}
	c.cycle()
	var readers sync.WaitGroup
	var ended atomic.Int32
	start := func(name string, args ...string) {
		readers.Go(func() {
			defer ended.Add(1)
			cmd := exec.CommandContext(t.Context(), name, args...)
			cmd.Env = append(os.Environ(), "PYTHONPATH=../../examples/python-reader", "PYTHONDONTWRITEBYTECODE=1")
			out, err := cmd.CombinedOutput()
			t.Log(strings.TrimSpace(string(out)))
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
	start(program, path, fmt.Sprint(times.Of(t, "FLOWTALLY_GROW_READS", 1e7, 1e6)), fmt.Sprint(segments))
	start("python3", "testdata/grow.py", path, fmt.Sprint(times.Of(t, "FLOWTALLY_GROW_PYTHON_READS", 1e5, 1e4)), fmt.Sprint(segments))
	cycles := 0
	for ; ended.Load() < 2; cycles++ {
		if c.added < segments*shm.SegmentLen {
			if err := c.grow(min(512, segments*shm.SegmentLen-c.added)); err != nil {
				t.Fatal(err)
			}
		}
		c.cycle()
	}
	readers.Wait()
	t.Logf("%d cycles, %d counters", cycles, c.added)
}
