package xdp

import (
	"errors"
	"fmt"
	"net"
	"strings"
)

// Exists reports whether there is an interface of that name, in the network namespace of the calling thread, or whether
// that is not known.
func Exists(ifname string) bool {
	_, _, err := interfaceByName(ifname)
	return !errors.Is(err, ErrNotFound)
}

// Listed is a list of the existing interfaces for an error, in the network namespace of the calling thread. To list them
// costs more the more there are, so one error of many has the list.
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
