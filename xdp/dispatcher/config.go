package dispatcher

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
)

// mostMembers is the largest number of components of a dispatcher.
const mostMembers = 10

// Values of config.Magic and config.Version. Version 3 adds a tail.
const (
	magic      = 236
	oldVersion = 2
	newVersion = 3
)

// goesOn is the verdict of a place without a component. The dispatcher then calls the next place.
const goesOn = 31

// hasFrags is BPF_F_XDP_HAS_FRAGS, which x/sys defines on Linux only.
const hasFrags = 1 << 5

// config is struct xdp_dispatcher_config of version 2, in the byte order of the host.
type config struct {
	Magic      uint8
	Version    uint8
	Programs   uint8
	Frags      uint8 // 1 if all components support frames of several buffers
	Actions    [mostMembers]uint32
	Priorities [mostMembers]uint32
	Flags      [mostMembers]uint32
}

// tail is what version 3 appends to config.
type tail struct {
	Bound uint8 // 1 if the dispatcher is bound to its device
	_     [3]uint8
}

var errConfig = errors.New("configuration of the dispatcher is not known")

// decode reads a configuration. It refuses one that this package would not write back completely.
func decode(value []byte) (config, error) {
	var c config
	var t tail
	r := bytes.NewReader(value)
	if err := binary.Read(r, binary.NativeEndian, &c); err != nil {
		return c, fmt.Errorf("%w: it has %d bytes", errConfig, len(value))
	}
	size := binary.Size(c)
	if c.Version == newVersion {
		size += binary.Size(t)
	}
	switch {
	case c.Magic != magic || c.Version < oldVersion || c.Version > newVersion:
		return c, fmt.Errorf("%w: version %d, and versions %d and %d are", errConfig, c.Version, oldVersion, newVersion)
	case len(value) != size || c.Programs > mostMembers:
		return c, fmt.Errorf("%w: %d bytes and %d programs in version %d", errConfig, len(value), c.Programs, c.Version)
	}
	if c.Version == newVersion {
		if err := binary.Read(r, binary.NativeEndian, &t); err != nil {
			return c, err
		}
		if t.Bound != 0 {
			return c, fmt.Errorf("%w: the dispatcher and its programs are bound to the device", errConfig)
		}
	}
	return c, nil
}

// encode is the inverse of decode.
func (c *config) encode() []byte {
	b, _ := binary.Append(nil, binary.NativeEndian, c) // cannot fail for a type of fixed size
	if c.Version == newVersion {
		b, _ = binary.Append(b, binary.NativeEndian, tail{})
	}
	return b
}

// configOf returns the configuration of a dispatcher with these components.
func configOf(version uint8, members []member) *config {
	c := &config{Magic: magic, Version: version, Programs: uint8(len(members)), Frags: 1}
	for i, m := range members {
		c.Actions[i], c.Priorities[i] = m.Actions|1<<goesOn, m.Priority
		if m.Frags {
			c.Flags[i] = hasFrags
		} else {
			c.Frags = 0
		}
	}
	return c
}
