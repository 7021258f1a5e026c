package xdp

import (
	"context"
	"strings"

	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/internal/kernel"
	"github.com/flowtally/flowtally/internal/tick"
	"github.com/flowtally/flowtally/xdp"
	"github.com/flowtally/flowtally/xdp/links"
)

// namespace is the network namespace of the instance, in the host's kernel or in Options.Kernel. Callers must call the methods
// about interfaces within Do.
type namespace struct {
	*backend.Netns               // nil with a kernel
	kernel         kernel.Kernel // of a test, or nil
}

func openNamespace(k kernel.Kernel) (namespace, error) {
	if k != nil {
		return namespace{kernel: k}, nil
	}
	ns, err := backend.CurrentNetns()
	return namespace{Netns: ns}, err
}

// Do runs fn in the namespace.
func (n namespace) Do(fn func() error) error {
	if n.kernel != nil {
		return fn()
	}
	return n.Netns.Do(fn)
}

// Close closes the namespace.
func (n namespace) Close() error {
	if n.kernel != nil {
		return nil
	}
	return n.Netns.Close()
}

// Interfaces implements backend.Interfaces.
func (n namespace) Interfaces() ([]string, error) {
	if n.kernel != nil {
		return n.kernel.Interfaces(), nil
	}
	return n.Netns.Interfaces()
}

// exists is xdp.Exists.
func (n namespace) exists(name string) bool {
	if n.kernel != nil {
		_, ok := n.kernel.Interface(name)
		return ok
	}
	return xdp.Exists(name)
}

// listed is xdp.Listed.
func (n namespace) listed() string {
	if n.kernel != nil {
		return "there are: " + strings.Join(n.kernel.Interfaces(), ", ")
	}
	return xdp.Listed()
}

// watch is links.Watch.
func (n namespace) watch(ctx context.Context) (<-chan links.Event, error) {
	if n.kernel != nil {
		return n.kernel.Watch(ctx)
	}
	return links.Watch(ctx)
}

// receiveOf returns what a device does to received packets. Of Options.Kernel nothing is known.
func (n namespace) receiveOf(name string) (receive, error) {
	if n.kernel != nil {
		return receive{}, nil
	}
	return receiveOf(name)
}

// policies returns the IPsec policies. Options.Kernel has none.
func (n namespace) policies() policies {
	if n.kernel != nil {
		return noPolicies{}
	}
	return newPolicies(n.Netns)
}

func (n namespace) newTicker() *tick.Ticker {
	if n.kernel != nil {
		return tick.NewRuntime()
	}
	return tick.New()
}
