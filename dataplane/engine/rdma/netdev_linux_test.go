package rdma

import (
	"strings"
	"testing"

	"github.com/vishvananda/netlink/nl"
)

// A reply to RDMA_NLDEV_CMD_PORT_GET, as nla_put writes it.
func TestNetdevByNetlink(t *testing.T) {
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

// No reply causes a panic, and a name has no NUL in it.
func FuzzPortNetdev(f *testing.F) {
	f.Add(nl.NewRtAttr(nl.RDMA_NLDEV_ATTR_NDEV_NAME, nl.ZeroTerminated("eth0")).Serialize())
	f.Add(nl.NewRtAttr(nl.RDMA_NLDEV_ATTR_NDEV_NAME, []byte("eth0")).Serialize())
	f.Add(nl.NewRtAttr(nl.RDMA_NLDEV_ATTR_PORT_INDEX, []byte{1}).Serialize())
	f.Add([]byte("\x05\x00000")) // a last attribute without its padding
	f.Fuzz(func(t *testing.T, answer []byte) {
		if p := portNetdevOf(answer); strings.ContainsRune(p.netdev, 0) {
			t.Errorf("%q", p.netdev)
		}
	})
}
