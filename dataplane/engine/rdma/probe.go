package rdma

import (
	"fmt"
	"slices"

	"github.com/flowtally/flowtally/ibv"
	"github.com/flowtally/flowtally/probe"
)

// DescribeDevice returns the name of a device for results of a probe. counts reports whether the device belongs to one of the
// interfaces. Without interfaces all devices do, and a device without an interface, such as EFA's, always does.
func DescribeDevice(d ibv.Device, interfaces []string) (object string, counts bool) {
	ports := netdevs(d.Name, d.SysfsPath)
	names := make([]string, len(ports))
	counts = len(interfaces) == 0
	for i, p := range ports {
		names[i] = p.netdev
		counts = counts || slices.Contains(interfaces, p.netdev)
	}
	if len(names) == 0 {
		return "rdma " + d.Name, true
	}
	return fmt.Sprintf("rdma %s (%s)", d.Name, join(names)), counts
}

// FeatureDevX is the name of the feature in the result of ProbeDevX.
const FeatureDevX = "DevX"

// ProbeDevX finds out whether a device can count with DevX, which leaves packets to the kernel and reads in bulk.
func ProbeDevX(lib *ibv.Library, device string) []probe.Result {
	ctx, err := lib.Open(device)
	if err != nil {
		return []probe.Result{probe.Ask(FeatureDevX, device, err)}
	}
	defer ctx.Close()
	r := probe.Ask(FeatureDevX, device, tryDevX(ctx))
	if r.Answer != probe.Yes && r.Fix == "" {
		r.Fix = "use a ConnectX device with libmlx5 and CAP_NET_RAW, or count by verbs or in XDP"
	}
	return []probe.Result{r}
}
