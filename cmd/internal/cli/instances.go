package cli

import (
	"fmt"
	"strconv"

	"github.com/flowtally/flowtally/cmd/internal/format"
	"github.com/flowtally/flowtally/cmd/internal/instances"
)

// instancesCmd lists the instances of this host, running or not.
type instancesCmd struct {
	outputFlag
}

// Help is shown by instances --help.
func (*instancesCmd) Help() string {
	return `An instance leaves a mirror, which has its totals, and pins, which keep its programs on their hooks. The states are: running; kept (it was stopped, and xdp.keep_pins lets its programs count on); stopped (its mirror has the last values); dead (its process ended without a stop, so its programs may count, and drop, on); pins (no mirror tells how it ended).

Examples:

  flowtally instances

  flowtally instances -o json`
}

// InstancesJSON is what instances and clean print.
type InstancesJSON struct {
	Schema    int            `json:"schema"`
	Instances []InstanceJSON `json:"instances"`
}

// InstanceJSON is an instance, or what is left of one.
type InstanceJSON struct {
	Name        string   `json:"name"`
	State       string   `json:"state"`        // running, kept (stopped, and its pins count on), stopped, dead (ended without a stop) or pins (no mirror tells how it ended)
	PID         *int     `json:"pid"`          // null: no process, or one that this user does not see
	Mirror      *string  `json:"mirror"`       // null: none
	MirrorBytes uint64   `json:"mirror_bytes"` // its size
	IdleSeconds *float64 `json:"idle_seconds"` // since the last sign of life of the writer; null without a mirror
	Pins        *string  `json:"pins"`         // the directory; null: none
	Programs    int      `json:"programs"`     // that are pinned to hooks; a place in a libxdp dispatcher is not among them
}

func (c *instancesCmd) Run(env *Env) error {
	list, err := instances.List(nil, nil)
	if err != nil {
		return fmt.Errorf("listing the instances of this host: %w", err)
	}
	if c.json() {
		return format.JSON(env.Stdout, instancesJSON(list))
	}
	if len(list) == 0 {
		fmt.Fprintln(env.Stderr, "flowtally: no instance runs here, and none has left anything that this user may see")
		return nil
	}
	_, err = fmt.Fprint(env.Stdout, instancesTable(list))
	return err
}

func instancesJSON(list []instances.Instance) InstancesJSON {
	out := InstancesJSON{Schema: 1, Instances: []InstanceJSON{}}
	for _, i := range list {
		j := InstanceJSON{
			Name:        i.Name,
			State:       string(i.State),
			MirrorBytes: i.Size,
			Programs:    i.Links,
		}
		if i.PID > 0 {
			j.PID = &i.PID
		}
		if i.Mirror != "" {
			idle := i.Idle.Seconds()
			j.Mirror = &i.Mirror
			j.IdleSeconds = &idle
		}
		if i.Pins != "" {
			j.Pins = &i.Pins
		}
		out.Instances = append(out.Instances, j)
	}
	return out
}

// instancesTable renders the table that instances prints, and that clean prints before it asks.
func instancesTable(list []instances.Instance) string {
	t := format.Table{Heading: []string{"INSTANCE", "STATE", ">PID", ">IDLE", ">SIZE", "MIRROR", ">PROGRAMS", "PINS"}}
	for _, i := range list {
		pid, idle, size, programs := "-", "-", "-", "-"
		if i.PID > 0 {
			pid = strconv.Itoa(i.PID)
		}
		if i.Mirror != "" {
			idle = format.Age(i.Idle)
			size = format.Bytes(i.Size)
		}
		if i.Pins != "" {
			programs = strconv.Itoa(i.Links)
		}
		t.Add(i.Name, string(i.State), pid, idle, size, format.OrDash(i.Mirror), programs, format.OrDash(i.Pins))
	}
	return t.Render()
}
