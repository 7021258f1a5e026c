package cli

import (
	"fmt"
	"os"

	"github.com/flowtally/flowtally/cmd/internal/explain"
	"github.com/flowtally/flowtally/internal/lab"
)

// sendFrames implements "sendframes INTERFACE N PACKET": it sends N frames of a packet on an interface.
func sendFrames() {
	if err := sendFramesOn(os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func sendFramesOn(ifname, count, packet string) error {
	var n int
	if _, err := fmt.Sscan(count, &n); err != nil {
		return err
	}

	m, err := parseMatch(packet)
	if err != nil {
		return err
	}
	frame, err := explain.Build(m)
	if err != nil {
		return err
	}
	return lab.SendOn(ifname, n, frame)
}
