package exportrows

import (
	"fmt"
	"path/filepath"

	"github.com/flowtally/flowtally/internal/bench"
	"github.com/flowtally/flowtally/shm"
)

// newMirror makes a mirror with flows in a directory of its own, and returns its path.
func newMirror(open *bench.Closers, flows int) (string, error) {
	dir, err := open.MirrorDir()
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "export.mirror")
	w, err := shm.Create(shm.Options{Path: path, History: -1})
	if err != nil {
		return "", err
	}
	open.Add(w.Close)
	return path, fill(w, flows)
}

// fill adds flows with labels and values of many digits.
func fill(w *shm.Writer, flows int) error {
	for i := range flows {
		_, err := w.Add(shm.Entry{
			Name:      fmt.Sprintf("tenant-%04d-https", i),
			Kind:      "flow",
			Text:      "ingress on eth0: ipv4 tcp dport 443",
			Source:    "xdp:eth0/native",
			ByteBasis: "l2",
			Valid:     true,
			Labels:    map[string]string{"team": fmt.Sprintf("team-%d", i%16)},
		})
		if err != nil {
			return err
		}
	}

	now := shm.Now()
	var b shm.Block
	w.BeginCycle()
	for i := range flows / shm.BlockLen {
		for j := range b {
			n := uint64(i*shm.BlockLen+j) * 7919 * 104729
			b[j] = shm.Value{Packets: n, Bytes: n * 743, SampledAt: now}
		}
		w.PublishBlock(i, &b)
	}
	w.EndCycle(now)
	return nil
}
