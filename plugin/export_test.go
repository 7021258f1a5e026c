package plugin

import (
	"google.golang.org/grpc"

	"github.com/flowtally/flowtally/dataplane"
	pluginv1 "github.com/flowtally/flowtally/plugin/proto/v1"
)

// Handshake is for the tests of this directory that run real processes.
var Handshake = handshake

// ChildExited is closed when the plugin process of this moment is reaped.
func (c *Client) ChildExited() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.current.child.Exited
}

// Register serves svc on s, as a control socket does.
func Register(s grpc.ServiceRegistrar, svc dataplane.Service) {
	pluginv1.RegisterDataplaneServer(s, &server{svc: svc})
}

// NewRemote returns the client of the instance at the other end of cc. Its Close hangs up.
func NewRemote(cc *grpc.ClientConn) dataplane.Service { return newRemote(cc, cc.Close) }
