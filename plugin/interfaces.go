package plugin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"unicode/utf8"

	"github.com/flowtally/flowtally/dataplane"
	pluginv1 "github.com/flowtally/flowtally/plugin/proto/v1"
	"github.com/flowtally/flowtally/probe"
)

// The call Interfaces, in the client and in the server.

// Interfaces implements dataplane.Service.
func (r *remote) Interfaces(ctx context.Context) ([]dataplane.Interface, error) {
	resp, err := call(ctx, r, r.rpc.Interfaces, &pluginv1.InterfacesRequest{})
	if err != nil {
		return nil, err
	}
	return interfacesFromProto(resp.GetInterfaces())
}

// knowsInterfaces returns ErrIncompatible if the plugin is too old to know a setting of the configuration, which it would
// silently ignore.
func (r *remote) knowsInterfaces(ctx context.Context, cfg *pluginv1.Config) error {
	list, err := interfacesFromProto(cfg.GetInterfaces())
	if err != nil {
		return err
	}
	isNew := func(i dataplane.Interface) bool { return i.Waits() || i.Direction != "" }
	if cfg.GetStart() == "" && !slices.ContainsFunc(list, isNew) {
		return nil // even the first release knows these settings
	}

	if _, err = r.Interfaces(ctx); errors.Is(err, probe.ErrNotSupported) {
		return fmt.Errorf("%w: it knows no patterns, optional interfaces, directions or start modes, and the configuration has some: install the plugin of this program's release", ErrIncompatible)
	}
	return err
}

func (s *server) Interfaces(ctx context.Context, _ *pluginv1.InterfacesRequest) (*pluginv1.InterfacesResponse, error) {
	svc, err := s.service()
	if err != nil {
		return nil, toStatus(err)
	}
	list, err := svc.Interfaces(ctx)
	if err != nil {
		return nil, toStatus(err)
	}
	msg, err := interfacesToProto(list)
	return &pluginv1.InterfacesResponse{Interfaces: msg}, toStatus(err)
}

func interfacesToProto(list []dataplane.Interface) ([]*pluginv1.Interface, error) {
	var out []*pluginv1.Interface
	for _, i := range list {
		if !utf8.ValidString(i.Name + "\x00" + string(i.Mode) + "\x00" + string(i.Direction)) {
			return nil, invalid("interface %q: name, mode %q or direction %q is not UTF-8", i.Name, i.Mode, i.Direction)
		}
		out = append(out, &pluginv1.Interface{
			Name:      i.Name,
			Mode:      string(i.Mode),
			Optional:  i.Optional,
			Direction: string(i.Direction),
		})
	}
	return out, nil
}

// interfacesFromProto does not validate the interfaces.
func interfacesFromProto(list []*pluginv1.Interface) (out []dataplane.Interface, err error) {
	for n, i := range list {
		if i == nil {
			return nil, invalid("interface %d: empty", n)
		}
		out = append(out, dataplane.Interface{
			Name:      i.Name,
			Mode:      dataplane.Mode(i.Mode),
			Optional:  i.Optional,
			Direction: dataplane.InterfaceDirection(i.Direction),
		})
	}
	return out, nil
}
