package lab

import (
	"fmt"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/flowtally/flowtally/internal/genl"
)

// Messages and attributes of linux/ethtool_netlink.h.
const (
	ethtoolFeaturesSet    = 12
	ethtoolFeaturesHeader = 1
	ethtoolFeaturesWanted = 3
	ethtoolHeaderIndex    = 1
	ethtoolBitsetBits     = 3
	ethtoolBitsetBit      = 1
	ethtoolBitName        = 2
	ethtoolBitValue       = 3
)

// SetFeatures turns features of the device on or off, by their names in `ethtool -k` ("tx-sctp-segmentation"). A feature
// that depends on another one may stay as it is.
func (e *End) SetFeatures(on bool, names ...string) error {
	err := e.NS.Do(func() error {
		ethtool, err := genl.Find("ethtool")
		if err != nil {
			return err
		}

		header := nl.NewRtAttr(ethtoolFeaturesHeader|unix.NLA_F_NESTED, nil)
		header.AddRtAttr(ethtoolHeaderIndex, nl.Uint32Attr(uint32(e.Index)))

		wanted := nl.NewRtAttr(ethtoolFeaturesWanted|unix.NLA_F_NESTED, nil)
		bits := wanted.AddRtAttr(ethtoolBitsetBits|unix.NLA_F_NESTED, nil)
		for _, name := range names {
			bit := bits.AddRtAttr(ethtoolBitsetBit|unix.NLA_F_NESTED, nil)
			bit.AddRtAttr(ethtoolBitName, nl.ZeroTerminated(name))
			if on {
				bit.AddRtAttr(ethtoolBitValue, nil)
			}
		}

		_, err = ethtool.Execute(ethtoolFeaturesSet, unix.NLM_F_ACK, header, wanted)
		return err
	})
	if err != nil {
		return fmt.Errorf("setting %v of %s to %t: %w", names, e.Name, on, err)
	}
	return nil
}
