package lab

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Offload is something that the stack leaves to a device.
type Offload uint8

const (
	TSO    Offload = iota // TCP segmentation on transmit
	GSO                   // segmentation in software, just before the driver
	GRO                   // coalescing on receive
	TxCsum                // checksums on transmit
	RxVLAN                // stripping the tag on receive
	TxVLAN                // inserting the tag on transmit
)

func (o Offload) String() string {
	return [...]string{"tso", "gso", "gro", "tx-checksum", "rx-vlan", "tx-vlan"}[o]
}

// The legacy ethtool commands: one word in, one word out (linux/ethtool.h).
var offloadCommands = [...]struct{ get, set uint32 }{
	TSO:    {0x1e, 0x1f},
	GSO:    {0x23, 0x24},
	GRO:    {0x2b, 0x2c},
	TxCsum: {0x16, 0x17},
	RxVLAN: {ethtoolGFlags, ethtoolSFlags},
	TxVLAN: {ethtoolGFlags, ethtoolSFlags},
}

const (
	ethtoolGFlags = 0x25
	ethtoolSFlags = 0x26
)

// offloadFlags are the bits of those that share one command (ETH_FLAG_*).
var offloadFlags = map[Offload]uint32{RxVLAN: 1 << 8, TxVLAN: 1 << 7}

// SetOffload turns every one of os on or off.
func (e *End) SetOffload(on bool, os ...Offload) error {
	for _, o := range os {
		value := uint32(0)
		if on {
			value = 1
		}
		if bit, shared := offloadFlags[o]; shared {
			flags, err := e.ethtool(ethtoolGFlags, 0)
			if err != nil {
				return fmt.Errorf("reading %s of %s: %w", o, e.Name, err)
			}
			if value = flags &^ bit; on {
				value |= bit
			}
		}
		if _, err := e.ethtool(offloadCommands[o].set, value); err != nil {
			return fmt.Errorf("setting %s of %s to %t: %w", o, e.Name, on, err)
		}
	}
	return nil
}

// Offload says whether o is on.
func (e *End) Offload(o Offload) (bool, error) {
	v, err := e.ethtool(offloadCommands[o].get, 0)
	if err != nil {
		return false, fmt.Errorf("reading %s of %s: %w", o, e.Name, err)
	}
	if bit, shared := offloadFlags[o]; shared {
		v &= bit
	}
	return v != 0, nil
}

// ethtool runs one SIOCETHTOOL on the end and returns its word. The socket is
// of the end's namespace: that is where the kernel looks the name up.
func (e *End) ethtool(cmd, data uint32) (uint32, error) {
	word := &[2]uint32{cmd, data}
	err := e.NS.Do(func() error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		return ioctlEthtool(fd, e.Name, word)
	})
	return word[1], err
}
