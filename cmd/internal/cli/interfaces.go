package cli

import (
	"net"
	"strings"
)

// interfaceNames returns the network interfaces of this host, or none if the kernel does not list them: its callers only
// offer them to a person.
func interfaceNames() []string {
	links, _ := net.Interfaces()
	names := make([]string, len(links))
	for i, l := range links {
		names[i] = l.Name
	}
	return names
}

// hintInterface turns err into a usage error that lists the interfaces of this host, if the host has none called name.
func hintInterface(err error, name string) error {
	if _, missing := net.InterfaceByName(name); name == "" || missing == nil {
		return err
	}
	return &usageError{withHint(err, "--interface NAME, which is one of %s", strings.Join(interfaceNames(), ", "))}
}
