package xdp

import (
	"fmt"
	"path/filepath"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Layout 10 differs from this version in the meta map alone, and no program reads that map. So Open can convert such pins while
// their programs keep counting. Every counter keeps its slots, its base and its cookie.

// metaSize holds the sizes that differ between layouts of the meta map.
type metaSize struct {
	header  int // words
	ports   int // records
	counter int // words of a record
}

var metaSizes = map[int]metaSize{
	10:         {header: 10, ports: 256, counter: 16},
	metaLayout: {header: metaHeader, ports: maxPorts, counter: metaCountWords},
}

// convertedPin is where the new meta map is pinned before it replaces the old one.
const convertedPin = "meta-next"

// convert replaces the pinned meta map of an earlier layout. A rename commits the change. If the process dies before that, the old
// pins are untouched, and the next convert removes the convertedPin.
func (dp *Datapath) convert(old *sharedMap, g geometry) error {
	if err := unpin(dp.lock, convertedPin); err != nil {
		return err
	}

	to := g
	to.layout = metaLayout
	m, err := newMap(dp.kernel, "ft_meta", metaBytes(to))
	if err != nil {
		return fmt.Errorf("creating map meta of %d bytes: %w", metaBytes(to), explain(err))
	}
	defer m.Close()
	next := &sharedMap{name: old.name, m: m}
	if err := next.mmap(); err != nil {
		return err
	}
	defer next.unmap()
	metaOf(next.words, to).copyFrom(metaOf(old.words, g))

	if err := m.Pin(filepath.Join(dp.dir, convertedPin)); err != nil {
		return fmt.Errorf("pinning map meta in %s: %w", dp.dir, explain(err))
	}
	dir := int(dp.lock.Fd())
	if err := unix.Renameat(dir, convertedPin, dir, old.name); err != nil {
		return fmt.Errorf("exchanging the pin of map meta in %s: %w", dp.dir, explain(err))
	}
	return nil
}

// copyFrom fills m from the meta map of an earlier layout. m must be all zeros.
func (m *meta) copyFrom(old *meta) {
	copy(m.secret, old.secret)
	copy(m.tuples, old.tuples)
	copy(m.ports, old.ports)
	copy(m.loaded, old.loaded)
	copy(m.dir, old.dir)
	words := len(old.counters) / (len(m.counters) / metaCountWords)
	for id := range len(old.counters) / words {
		copy(m.counter(uint32(id)), old.counters[id*words:][:words])
	}
	copy(m.header[2:], old.header[2:])
	m.header[1] = metaLayout
	atomic.StoreUint64(&m.header[0], metaMagic)
}
