//go:build vm && linux

package engine

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/internal/lab"
)

// The kernel connects by SCTP: its first packet has the verification tag 0, and the others that of the peer.
func TestKernelSCTPIsCountedByPortAndTag(t *testing.T) {
	b := newBench(t, "tcx",
		flow.Flow{Name: "init", Match: match(t, "ipv4 sctp dport diameter vtag 0")},
		flow.Flow{Name: "others", Match: match(t, "ipv4 src 10.77.0.2 sctp dport 3868"), Priority: 1},
		flow.Flow{Name: "miss", Match: match(t, "sctp"), Priority: 2},
	)
	underlay(t, b.wire)
	socket := func(end *lab.End, use func(fd int) error) {
		t.Helper()
		if err := end.NS.Do(func() error {
			fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_SCTP)
			if err != nil {
				return err
			}
			t.Cleanup(func() { unix.Close(fd) })
			return use(fd)
		}); err != nil {
			t.Fatal(err)
		}
	}
	peer := &unix.SockaddrInet4{Port: 3868, Addr: [4]byte{10, 77, 0, 1}}
	socket(b.wire.Near, func(fd int) error { return errors.Join(unix.Bind(fd, peer), unix.Listen(fd, 1)) })

	e := b.start(t)
	socket(b.wire.Far, func(fd int) error {
		if err := unix.Connect(fd, peer); err != nil {
			return err
		}
		_, err := unix.Write(fd, []byte("hello"))
		return err
	})
	lab.Eventually(t, "packets", func() bool { return inKernel(t, e, "init") > 0 && inKernel(t, e, "others") >= 2 }) // COOKIE ECHO, DATA
	if miss := inKernel(t, e, "miss"); miss != 0 {
		t.Errorf("%d packets have another port", miss)
	}
}

// The kernel writes authentication headers in transport mode.
func TestKernelAHIsCountedBySPI(t *testing.T) {
	const n = 100
	b := newBench(t, "native",
		flow.Flow{Name: "in", Match: match(t, "ipv4 dst 10.77.0.1 ah spi 0x100")},
		flow.Flow{Name: "miss", Match: match(t, "ipv4 ah"), Priority: 1},
		flow.Flow{Name: "clear", Match: match(t, "udp"), Priority: 2},
	)
	underlay(t, b.wire)
	ip(t, b.wire.Far, `
		xfrm state add src 10.77.0.2 dst 10.77.0.1 proto ah spi 0x100 mode transport auth digest_null ''
		xfrm policy add src 10.77.0.2 dst 10.77.0.1 dir out tmpl src 10.77.0.2 dst 10.77.0.1 proto ah mode transport`)

	e := b.start(t)
	sendUDP(t, b.wire.Far, "10.77.0.1:1001", n)
	lab.Eventually(t, "all packets", func() bool { return inKernel(t, e, "in") >= n })
	if in, miss, clear := inKernel(t, e, "in"), inKernel(t, e, "miss"), inKernel(t, e, "clear"); in != n || miss+clear != 0 {
		t.Errorf("sent %d: %d have the SPI, %d another, and %d no header", n, in, miss, clear)
	}
}
