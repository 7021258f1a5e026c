package probe_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/flowtally/flowtally/probe"
)

func TestAskMakesOnlySupportErrorsConclusive(t *testing.T) {
	no := &probe.UnsupportedError{Feature: "native XDP", Object: "eth0", Reason: "the driver has no ndo_bpf", Fix: "use mode generic"}
	for _, c := range []struct {
		name string
		err  error
		want probe.Result
	}{
		{"no error is yes", nil, probe.Result{Answer: probe.Yes}},
		{"an UnsupportedError is no, with its reason", no, probe.Result{Answer: probe.No, Reason: no.Reason, Fix: no.Fix}},
		{"wrapped too", fmt.Errorf("attaching: %w", no), probe.Result{Answer: probe.No, Reason: no.Reason, Fix: no.Fix}},
		{"joined too", errors.Join(errors.New("first"), no), probe.Result{Answer: probe.No, Reason: no.Reason, Fix: no.Fix}},
		{"the bare sentinel is no", fmt.Errorf("built without cgo: %w", probe.ErrNotSupported), probe.Result{Answer: probe.No, Reason: "built without cgo: not supported"}},
		{"any other error answers nothing", errors.New("operation not permitted"), probe.Result{Reason: "operation not permitted"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.want.Feature, c.want.Object = "xdp", "eth0"
			if diff := cmp.Diff(c.want, probe.Ask("xdp", "eth0", c.err)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestUnsupportedErrorSatisfiesItsSentinelAlone(t *testing.T) {
	for _, c := range []struct {
		err  *probe.UnsupportedError
		want string
	}{
		{&probe.UnsupportedError{Feature: "native XDP", Object: "eth0", Reason: "no driver"}, "native XDP on eth0: not supported: no driver"},
		{&probe.UnsupportedError{Feature: "TCX", Reason: "kernel 6.1 is older than 6.6"}, "TCX: not supported: kernel 6.1 is older than 6.6"},
	} {
		if got := c.err.Error(); got != c.want {
			t.Errorf("error %q, want %q", got, c.want)
		}
		if !errors.Is(c.err, probe.ErrNotSupported) || errors.Is(c.err, errors.New("not supported")) {
			t.Errorf("%v does not satisfy ErrNotSupported, or satisfies anything", c.err)
		}
	}
}

func TestZeroAnswerIsInconclusive(t *testing.T) {
	var zero probe.Answer
	for answer, want := range map[probe.Answer]string{zero: "inconclusive", probe.Yes: "yes", probe.No: "no", 7: "Answer(7)"} {
		if answer.String() != want {
			t.Errorf("answer %d is %q, want %q", uint8(answer), answer, want)
		}
	}
}
