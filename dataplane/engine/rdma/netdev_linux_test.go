package rdma

import (
	"errors"
	"strings"
	"testing"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// The reply has its attributes as the kernel's nla_put writes them.
func TestAPortReplyNamesItsInterface(t *testing.T) {
	answer := nl.NewRtAttr(nl.RDMA_NLDEV_ATTR_DEV_NAME, nl.ZeroTerminated("mlx5_0")).Serialize()
	answer = append(answer, nl.NewRtAttr(nl.RDMA_NLDEV_ATTR_PORT_INDEX, nl.Uint32Attr(2)).Serialize()...)
	answer = append(answer, nl.NewRtAttr(nl.RDMA_NLDEV_ATTR_NDEV_NAME, nl.ZeroTerminated("ens1f1")).Serialize()...)
	if got, want := portNetdevOf(answer), (portNetdev{2, "ens1f1"}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got := netdevsByNetlink("nosuch0"); got != nil {
		t.Errorf("of a device that is not there: %v", got)
	}
}

// A function without an e-switch is not in switchdev mode, either.
func TestOnlySwitchdevModeIsSwitchdev(t *testing.T) {
	for mode, want := range map[uint16]bool{nl.DEVLINK_ESWITCH_MODE_LEGACY: false, nl.DEVLINK_ESWITCH_MODE_SWITCHDEV: true} {
		answer := nl.NewRtAttr(nl.DEVLINK_ATTR_BUS_NAME, nl.ZeroTerminated("pci")).Serialize()
		answer = append(answer, nl.NewRtAttr(nl.DEVLINK_ATTR_ESWITCH_MODE, nl.Uint16Attr(mode)).Serialize()...)
		if got := isSwitchdev(answer); got != want {
			t.Errorf("mode %d: %v, want %v", mode, got, want)
		}
	}
	if is, err := switchdevByNetlink("pci", "ffff:ff:1f.7"); is || err != nil && !errors.Is(err, unix.EPERM) {
		t.Errorf("of a function that is not there: %v, %v", is, err)
	}
}

// No reply may cause a panic, or a name with a NUL.
func FuzzPortNetdev(f *testing.F) {
	f.Add(nl.NewRtAttr(nl.RDMA_NLDEV_ATTR_NDEV_NAME, nl.ZeroTerminated("eth0")).Serialize())
	f.Add(nl.NewRtAttr(nl.RDMA_NLDEV_ATTR_NDEV_NAME, []byte("eth0")).Serialize())
	f.Add(nl.NewRtAttr(nl.RDMA_NLDEV_ATTR_PORT_INDEX, []byte{1}).Serialize())
	f.Add([]byte("\x05\x00000")) // a last attribute without its padding
	f.Fuzz(func(t *testing.T, answer []byte) {
		isSwitchdev(answer)
		if p := portNetdevOf(answer); strings.ContainsRune(p.netdev, 0) {
			t.Errorf("%q", p.netdev)
		}
	})
}
