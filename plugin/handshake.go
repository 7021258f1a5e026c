package plugin

import (
	"context"
	"errors"

	goplugin "github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"

	pluginv1 "github.com/flowtally/flowtally/plugin/proto/v1"
)

const (
	// BinaryName is the file name of the plugin that comes with flowtally.
	BinaryName = "flowtally-plugin"
	// ProtocolVersion is the newest supported major version of the protocol: flowtally.plugin.v1.
	ProtocolVersion = 1
)

// handshake lets a plugin notice that somebody started it by hand. It is not a secret. Never change its values: an
// incompatible plugin could not even report its version then.
var handshake = goplugin.HandshakeConfig{
	MagicCookieKey:   "FLOWTALLY_PLUGIN_COOKIE",
	MagicCookieValue: "8b1f6c2de0a94c57b3e2f4a9d7c815f60e3ba2917d4c4be8a6f05d913c7e2ab4",
}

// dispensed is go-plugin's name for the only service of a plugin.
const dispensed = "dataplane"

// glue connects both sides to go-plugin. In the plugin, server is set. The host gets an *ends.
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

// ends is what go-plugin gives to the host: the client of the instance, and the connection for health checks.
type ends struct {
	svc *remote
	cc  *grpc.ClientConn
}

// versions lists every supported major version of the protocol.
func versions(s *server) map[int]goplugin.PluginSet {
	return map[int]goplugin.PluginSet{ProtocolVersion: {dispensed: &glue{server: s}}}
}
