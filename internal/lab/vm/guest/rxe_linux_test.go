//go:build vm

package guest

import (
	"os"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/flowtally/flowtally/internal/lab"
)

func TestMain(m *testing.M) {
	os.Exit(m.Run())
}

func TestRXE(t *testing.T) {
	near, err := lab.CurrentNetns()
	if err != nil {
		t.Fatal(err)
	}
	defer near.Close()
	far, err := lab.NewNetns("")
	if err != nil {
		t.Fatal(err)
	}
	defer far.Close()
	pair, err := lab.NewPair(near, far, "v0", "v1", lab.PairOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer pair.Close()
	if err := netlink.RdmaLinkAdd("rxe0", "rxe", "v0"); err != nil {
		t.Fatal(err)
	}
	links, err := netlink.RdmaLinkList()
	t.Log(links, err)
}
