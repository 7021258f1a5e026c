package rdma

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/flowtally/flowtally/dataplane/engine/trial"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/ibv"
	"github.com/flowtally/flowtally/probe"
)

// ibvHardware is the RDMA devices of libibverbs.
type ibvHardware struct {
	lib       *ibv.Library
	host      host
	guard     *trial.Guard
	steal     bool
	switchdev string // as Options.Switchdev
	mlx5      string // of the configuration
	log       *slog.Logger
}

func openIBV(o Options) (*ibvHardware, error) {
	lib, err := ibv.Load(ibv.Options{Library: o.RDMA.Library, MLX5: o.RDMA.MLX5, Logger: o.Logger, Calls: o.Guard.Calls()})
	if err != nil {
		return nil, err
	}
	return &ibvHardware{
		lib: lib, host: thisHost, guard: o.Guard, steal: o.RDMA.Steal, switchdev: o.Switchdev, mlx5: o.RDMA.MLX5, log: o.Logger,
	}, nil
}

// devices implements hardware.
func (h *ibvHardware) devices() ([]portInfo, error) {
	list, err := h.lib.Devices()
	if err != nil {
		return nil, err
	}
	var out []portInfo
	for _, d := range list {
		ports := netdevs(d.Name, d.SysfsPath)
		from := len(out)
		for _, p := range ports {
			out = append(out, portInfo{
				name: d.Name, port: p.port, netdev: p.netdev, driver: driverOf(d.SysfsPath), shared: len(ports) > 1,
			})
		}
		h.host.placePorts(out[from:], d.SysfsPath)
		if d.Name != h.switchdev {
			continue
		}
		for i := range out[from:] {
			out[from+i].refused = nil
		}
	}
	return out, nil
}

// open implements hardware. A child process tries the device out first, because a faulty driver may crash or hang.
func (h *ibvHardware) open(info portInfo) (nic, error) {
	if err := h.guard.Device(trial.Request{Device: info.name, Flows: true, Port: info.port, Shared: info.shared}); err != nil {
		return nil, err
	}
	return h.openUntried(info)
}

// openUntried opens a device without a trial: with DevX if possible, otherwise with verbs.
func (h *ibvHardware) openUntried(info portInfo) (nic, error) {
	ctx, err := h.lib.Open(info.name)
	if err != nil {
		return nil, err
	}

	var dx *devxNIC
	noDevX := errSharedDevice
	if !info.shared {
		dx, noDevX = openDevXNIC(ctx, info.port)
	}
	if noDevX == nil {
		return dx, nil
	}

	level := slog.LevelDebug
	if h.mlx5 != "" { // the configuration asks for it
		level = slog.LevelWarn
	}
	h.log.Log(context.Background(), level, "DevX is not used: counting by verbs", "device", info.name, "rdma.mlx5", h.mlx5, "err", noDevX)
	n, err := openVerbsNIC(ctx, info.port, h.steal)
	if err != nil {
		return nil, errors.Join(cannotCount(info.name, err, noDevX), ctx.Close())
	}
	return n, nil
}

// errSharedDevice: DevX would count the packets of all ports, because only verbs flows name a port.
var errSharedDevice = errors.New("ports share the device, and rules of DevX name none")

// cannotCount joins the reasons against verbs and DevX. The error satisfies probe.ErrNotSupported if the device does not support
// verbs flows at all. An EPERM, say, is no such reason.
func cannotCount(device string, verbs, devx error) error {
	if !errors.Is(verbs, probe.ErrNotSupported) {
		return fmt.Errorf("%s cannot count flows: %w; %w", device, verbs, devx)
	}
	return &probe.UnsupportedError{
		Feature: "counting flows",
		Object:  device,
		Reason:  verbs.Error() + "; " + devx.Error(),
		Fix:     "use a NIC whose driver has flow counters (mlx5), or count in XDP",
	}
}

func (h *ibvHardware) Close() error { return h.lib.Close() }

// noPacket returns a match that no packet has: frames of an experimental EtherType from an unassigned address to itself.
func noPacket() ruleMatch {
	mac := flow.MAC{Addr: [6]byte{0x02, 0xf1, 0x0b, 0x7a, 0x11, 0x1e}, Mask: [6]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}}
	return ruleMatch{Match: flow.Match{Eth: &flow.Eth{Src: mac, Dst: mac, Type: flow.Masked[uint16]{Value: 0x88b5, Mask: 0xffff}}}}
}

// nextEvent waits for the next event that concerns counting on the port.
func nextEvent(ctx context.Context, c *ibv.Context, port uint8) (nicEvent, error) {
	for {
		ev, err := c.NextEvent(ctx)
		switch {
		case err != nil:
			return 0, err
		case ev.Type == ibv.EventDeviceFatal:
			return nicFatal, nil
		case ev.Type == ibv.EventPortErr && ev.Port == int(port):
			return nicPortDown, nil
		case ev.Type == ibv.EventPortActive && ev.Port == int(port):
			return nicPortUp, nil
		}
	}
}
