// Package instances lists the instances of this host, running or not. It finds them by what each leaves outside its
// processes: a mirror, and pins on a bpffs. It takes no lock, because that could make an instance's start fail.
package instances

import (
	"cmp"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// State of an instance.
type State string

const (
	Running State = "running" // a process holds its mirror or its pins
	Kept    State = "kept"    // it stopped, and xdp.keep_pins lets its programs count on
	Stopped State = "stopped" // it stopped, and its mirror has the last values
	Dead    State = "dead"    // its process ended without a stop
	Pins    State = "pins"    // it has pins and no mirror, so how it ended is not known
)

// Instance is an instance, or its remains.
type Instance struct {
	Name   string
	Owner  uint32 // of the mirror, or of the pins if there is no mirror
	State  State
	PID    int           // of the counting process; 0: none, or one of another PID namespace
	Mirror string        // the file; "": none
	Size   uint64        // of the file
	Idle   time.Duration // since the last sign of life of its writer; 0 without a mirror
	Pins   string        // the directory; "": none
	Links  int           // number of pinned programs
}

// HasProcess reports whether a process runs the instance.
func (i Instance) HasProcess() bool { return i.State == Running }

// place is a mirror or a directory of pins, before join has combined them.
type place struct {
	path   string
	owner  uint32
	holder int // the process with its lock; 0: none, -1: one of another PID namespace
}

func nameOfMirror(path string) string { return strings.TrimSuffix(filepath.Base(path), ".mirror") }

// join combines mirrors and pins of the same name and owner into instances. The owner matters: any user can make a mirror
// with the name of root's instance, and must not influence what happens to root's pins. links counts the programs pinned
// in a directory, and status reads a mirror.
func join(mirrors, pins []place, links func(dir string) int, status func(path string) (halted bool, size uint64, idle time.Duration)) []Instance {
	var all []Instance
	joined := make(map[string]bool) // the directories of pins that have a mirror
	for _, m := range mirrors {
		i := Instance{Name: nameOfMirror(m.path), Owner: m.owner, Mirror: m.path, PID: max(m.holder, 0)}
		halted, size, idle := status(m.path)
		i.Size = size
		i.Idle = idle

		held := m.holder != 0
		own := slices.IndexFunc(pins, func(p place) bool {
			return filepath.Base(p.path) == i.Name && p.owner == m.owner && !joined[p.path]
		})
		if own >= 0 {
			p := pins[own]
			joined[p.path] = true
			i.Pins = p.path
			i.Links = links(p.path)
			held = held || p.holder != 0
		}
		i.State = stateOf(held, halted, i.Pins != "")
		all = append(all, i)
	}

	for _, p := range pins {
		if joined[p.path] {
			continue
		}
		i := Instance{
			Name:  filepath.Base(p.path),
			Owner: p.owner,
			State: Pins,
			Pins:  p.path,
			Links: links(p.path),
			PID:   max(p.holder, 0),
		}
		if p.holder != 0 {
			i.State = Running
		}
		all = append(all, i)
	}

	slices.SortFunc(all, func(a, b Instance) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Mirror, b.Mirror), cmp.Compare(a.Pins, b.Pins))
	})
	return all
}

// stateOf returns the state of an instance with a mirror.
func stateOf(held, halted, pinned bool) State {
	switch {
	case held:
		return Running
	case !halted:
		return Dead
	case pinned:
		return Kept
	}
	return Stopped
}
