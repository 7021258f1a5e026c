package rdma

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/flowtally/flowtally/dataplane"
)

// slowAge is the age of samples above which we call the budget of commands too small.
const slowAge = time.Second

// conditions returns why the device does not count. If it counts, it returns why its samples are old.
func (d *device) conditions() []dataplane.Condition {
	switch {
	case d.down != nil:
		return d.downConditions()
	case d.open == nil:
		return nil // no device was opened yet
	}
	return d.readConditions()
}

// downConditions returns the condition of a device which is down, by its reason.
func (d *device) downConditions() []dataplane.Condition {
	switch {
	case d.dead():
		return []dataplane.Condition{{
			Code:     dataplane.CodeRDMADeviceLost,
			Severity: dataplane.Medium,
			Object:   d.name,
			Text:     fmt.Sprintf("%s of %s: %v; its flows are counted elsewhere, where that is possible", d.name, d.netdev, d.down),
			Fix:      "see dmesg and `rdma link`; when the device is back, counting on it goes on by itself",
		}}
	case errors.Is(d.down, errRuleStuck):
		reason := strings.ReplaceAll(d.down.Error(), "\n", "; ")
		return []dataplane.Condition{{
			Code:     dataplane.CodeRDMARuleStuck,
			Severity: dataplane.High,
			Object:   d.name,
			Text:     fmt.Sprintf("%s of %s: %v; packets that it matches may stay uncounted, or may not reach the kernel", d.name, d.netdev, reason),
			Fix:      "restart the instance, because rules end with the process; counting on the device goes on by itself if the rule can be taken out",
		}}
	default: // errPortDown
		return []dataplane.Condition{{
			Code:     dataplane.CodeRDMAPortDown,
			Severity: dataplane.Low,
			Object:   d.name,
			Text:     fmt.Sprintf("the port of %s, which is %s, is down", d.name, d.netdev),
			Fix:      "bring the link up: ip link set " + d.netdev + " up; counting on it goes on by itself",
		}}
	}
}

// readConditions returns the conditions of old samples: reads fail, or the budget has too few of them.
func (d *device) readConditions() (out []dataplane.Condition) {
	failing, err, oldest := d.reader.health(d.now())
	if failing > 0 {
		out = append(out, dataplane.Condition{
			Code:     dataplane.CodeRDMAReadErrors,
			Severity: dataplane.High,
			Object:   d.name,
			Text:     fmt.Sprintf("%d of its counters cannot be read: %v; their values grow old", failing, err),
			Fix:      "see dmesg for firmware errors; reading is tried again, more and more rarely",
		})
	}
	if oldest > slowAge {
		out = append(out, dataplane.Condition{
			Code:     dataplane.CodeRDMABudget,
			Severity: dataplane.Low,
			Object:   d.name,
			Text:     fmt.Sprintf("values are up to %s old: every read is a firmware command", oldest.Round(100*time.Millisecond)),
			Fix:      "raise rdma.commands_per_second and restart, count fewer flows in hardware, or use DevX with rdma-core 63 or later, which reads 128 counters by one command",
		})
	}
	return out
}
