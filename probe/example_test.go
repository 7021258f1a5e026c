package probe_test

import (
	"errors"
	"fmt"

	"github.com/flowtally/flowtally/probe"
)

// A feature that a device lacks: the result is no, with a reason and a fix.
func ExampleAsk() {
	err := &probe.UnsupportedError{Feature: "flow counters", Object: "mlx5_0", Reason: "the firmware lacks them", Fix: "update the firmware"}
	r := probe.Ask("flow counters", "mlx5_0", err)
	fmt.Println(r.Answer, "-", r.Fix)
	fmt.Println(probe.Ask("flow counters", "mlx5_0", nil).Answer)
	fmt.Println(probe.Ask("flow counters", "mlx5_0", errors.New("the device is busy")).Answer)
	// Output:
	// no - update the firmware
	// yes
	// inconclusive
}
