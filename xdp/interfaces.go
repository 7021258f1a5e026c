package xdp

import (
	"errors"
	"fmt"
	"net"
	"strings"
)

// Exists reports whether an interface exists in the network namespace of the calling thread. If the kernel does not answer, it
// returns true.
func Exists(ifname string) bool {
	_, _, err := interfaceByName(ifname)
	return !errors.Is(err, ErrNotFound)
}

// Listed lists the interfaces of the calling thread's network namespace as text for an error. Its cost grows with their number, so
// callers should add it to one error of many.
func Listed() string {
	all, err := net.Interfaces()
	if err != nil {
		return "the interfaces cannot be listed: " + err.Error()
	}
	const most = 16
	var names []string
	for _, i := range all[:min(len(all), most)] {
		names = append(names, i.Name)
	}
	if len(all) > most {
		names = append(names, fmt.Sprintf("and %d more", len(all)-most))
	}
	return "there are: " + strings.Join(names, ", ")
}
