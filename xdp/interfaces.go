package xdp

import (
	"errors"
	"fmt"
	"net"
	"strings"
)

// Exists reports whether an interface of that name exists, in the network namespace of the calling thread. It returns true if the
// kernel does not tell.
func Exists(ifname string) bool {
	_, _, err := interfaceByName(ifname)
	return !errors.Is(err, ErrNotFound)
}

// Listed lists the interfaces of the network namespace of the calling thread, for an error. Its cost grows with their number, so one
// error of many has the list.
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
