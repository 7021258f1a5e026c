package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/flowtally/flowtally/cmd/internal/format"
	"github.com/flowtally/flowtally/cmd/internal/instances"
	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/xdp"
	"github.com/flowtally/flowtally/plugin"
	"github.com/flowtally/flowtally/probe"
)

// leftovers returns doctor's results about instances whose process died without cleaning up, and about programs of
// another release on the hooks of any instance.
func leftovers() (results []probe.Result) {
	list, err := instances.List(nil, nil)
	if err != nil {
		return nil
	}
	for _, i := range list {
		if r, is := otherBuild(i); is {
			results = append(results, r)
		}
		if i.State == instances.Dead || i.State == instances.Pins {
			results = append(results, leftover(i))
		}
	}
	return results
}

// leftover returns doctor's result about a dead instance.
func leftover(i instances.Instance) probe.Result {
	r := probe.Result{
		Object:  "instance " + i.Name,
		Feature: "nothing left of a dead instance",
		Answer:  probe.No,
		Fix:     "flowtally clean --instance " + i.Name,
	}
	switch {
	case i.Links > 0:
		r.Reason = fmt.Sprintf("no process runs it, and %s in %s count, and drop, on", format.Plural(uint64(i.Links), "pinned program", "pinned programs"), i.Pins)
	case i.Pins != "":
		r.Reason = "no process runs it, and it has pins in " + i.Pins
	default:
		r.Reason = fmt.Sprintf("no process runs it, and its mirror %s has %s", i.Mirror, format.Bytes(i.Size))
	}
	return r
}

// otherBuild returns doctor's result about an instance whose hooks still run programs of another release.
func otherBuild(i instances.Instance) (r probe.Result, is bool) {
	if i.Pins == "" {
		return r, false
	}
	if is, err := xdp.OtherBuild(i.Pins); err != nil || !is {
		return r, false
	}

	fix := "flowtally clean --instance " + i.Name + " # or start it: it exchanges them"
	if i.HasProcess() {
		fix = "restart it (systemctl restart flowtally): its start exchanges them"
	}
	return probe.Result{
		Object:  "instance " + i.Name,
		Feature: "programs of this release",
		Answer:  probe.No,
		Fix:     fix,
		Reason:  format.Plural(uint64(i.Links), "program", "programs") + " of another build on hooks; an earlier release can alter packets (bpf_skb_pull_data), which crashes some kernels",
	}, true
}

// withDead adds the dead instances of this host to the error of a failed start. Any of them may be the cause: its program
// is still on the hook, its mirror fills the tmpfs, or its pins are of another size or release.
func withDead(err error, cfg dataplane.Config) error {
	unrelated := []error{plugin.ErrUntrusted, plugin.ErrIncompatible, dataplane.ErrPermission, fs.ErrNotExist}
	if slices.ContainsFunc(unrelated, func(is error) bool { return errors.Is(err, is) }) {
		return err
	}
	list, listErr := instances.List([]string{cfg.Mirror.Path}, []string{cfg.XDP.PinDir})
	if listErr != nil {
		return err
	}

	text := err.Error()
	for _, i := range list {
		if i.State != instances.Dead && i.State != instances.Pins {
			continue
		}
		command := "flowtally clean --instance " + i.Name
		if !strings.Contains(text, command) {
			err = errors.Join(err, fmt.Errorf("instance %s: no process runs it, and it has left %s: %s removes it, with its counts", i.Name, leftBy(i), command))
		}
	}
	return err
}

// leftBy says what a dead instance has left, for a sentence with "it has left".
func leftBy(i instances.Instance) string {
	switch {
	case i.Links > 0:
		return format.Plural(uint64(i.Links), "program", "programs") + " on hooks, pinned in " + i.Pins
	case i.Pins != "":
		return "pins in " + i.Pins
	}
	return fmt.Sprintf("a mirror of %s, %s", format.Bytes(i.Size), i.Mirror)
}
