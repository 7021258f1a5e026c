package plugin

import (
	"context"
	"errors"

	goplugin "github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"

	pluginv1 "github.com/flowtally/flowtally/plugin/proto/v1"
)

const (
	// BinaryName is the name of the plugin that flowtally ships.
	BinaryName = "flowtally-plugin"
	// ProtocolVersion is the newest major version that this package speaks: flowtally.plugin.v1.
	ProtocolVersion = 1
)

// handshake tells a plugin started by a host from one started by hand. It is no secret. Its values never change: with
// another value, an incompatible plugin could not report its version.
var handshake = goplugin.HandshakeConfig{
	MagicCookieKey:   "FLOWTALLY_PLUGIN_COOKIE",
	MagicCookieValue: "8b1f6c2de0a94c57b3e2f4a9d7c815f60e3ba2917d4c4be8a6f05d913c7e2ab4",
}

// dispensed is the name of the one service that a plugin of flowtally has.
const dispensed = "dataplane"

// glue connects the two ends to go-plugin: server is set in the plugin, and
// the host is handed *ends.
type glue struct {
	goplugin.NetRPCUnsupportedPlugin
	server *server
}

var _ goplugin.GRPCPlugin = (*glue)(nil)

func (g *glue) GRPCServer(_ *goplugin.GRPCBroker, s *grpc.Server) error {
	if g.server == nil {
		return errors.New("serving: this side is the host")
	}
	pluginv1.RegisterDataplaneServer(s, g.server)
	return nil
}

func (g *glue) GRPCClient(_ context.Context, _ *goplugin.GRPCBroker, cc *grpc.ClientConn) (any, error) {
	return &ends{svc: newRemote(cc, nil), cc: cc}, nil
}

// ends has the client of the instance, and the connection for health checks. go-plugin hands it to the host.
type ends struct {
	svc *remote
	cc  *grpc.ClientConn
}

// versions lists every major version that this side speaks.
func versions(s *server) map[int]goplugin.PluginSet {
	return map[int]goplugin.PluginSet{ProtocolVersion: {dispensed: &glue{server: s}}}
}
