//go:build !linux

package plugin

import (
	"net"
	"runtime"

	"github.com/flowtally/flowtally/probe"
)

func peerCredentials() error {
	return &probe.UnsupportedError{
		Feature: "the control socket", Object: runtime.GOOS,
		Reason: "peers are identified by SO_PEERCRED, which is Linux's", Fix: "run on Linux",
	}
}

func peerOf(net.Conn) (caller, error) { return caller{}, peerCredentials() }
