package xdp

import (
	"fmt"

	"github.com/cilium/ebpf"
)

// Specialize is for benchmarks. It gives an object that includes bpf/tables.h the constants of the attached programs, for a hook of
// the interface with the number port. It returns the maps to replace the object's sections with. Note that a change of rules does
// not exchange programs of this object, so they may not find later rules.
func (dp *Datapath) Specialize(spec *ebpf.CollectionSpec, h Hook, port uint16) (map[string]*ebpf.Map, error) {
	if err := dp.enter(); err != nil {
		return nil, err
	}
	defer dp.mu.Unlock()

	if err := fitSections(spec, dp.maps); err != nil {
		return nil, err
	}
	replacements, err := dp.loader.setConstants(spec, dp.loader.config(dp.constants, site{hookKey: hookKey{port, h}}))
	if err != nil {
		return nil, fmt.Errorf("specializing an object: %w", err)
	}
	return replacements, nil
}
