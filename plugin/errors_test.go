package plugin

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"
	"unicode/utf8"

	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/probe"
)

// cross sends an error over the wire.
func cross(t testing.TB, err error) error {
	t.Helper()
	onWire, merr := proto.Marshal(status.Convert(toStatus(err)).Proto())
	if merr != nil {
		t.Fatalf("marshalling %q: %v", err, merr)
	}
	var p spb.Status
	if uerr := proto.Unmarshal(onWire, &p); uerr != nil {
		t.Fatal(uerr)
	}
	return fromStatus(status.FromProto(&p).Err())
}

func TestEverySentinelCrossesTheWireWithItsText(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range sentinels {
		if seen[s.reason] {
			t.Errorf("reason %s twice", s.reason)
		}
		seen[s.reason] = true
		for _, err := range []error{s.err, fmt.Errorf("adding flow %q: %w", "web", s.err)} {
			got := cross(t, err)
			if got.Error() != err.Error() {
				t.Errorf("text is %q, want %q", got, err)
			}
			if again := cross(t, got); again.Error() != err.Error() || !errors.Is(again, s.err) {
				t.Errorf("across two wires: %q", again)
			}
			for _, other := range sentinels {
				if want := other.err == s.err; errors.Is(got, other.err) != want {
					t.Errorf("%v satisfies %v: %v", err, other.err, !want)
				}
			}
			if code := status.Code(toStatus(err)); code != s.code || code == codes.OK || code == codes.Unknown {
				t.Errorf("%v has the code %v, want %v", err, code, s.code)
			}
		}
	}
	for _, err := range []error{
		dataplane.ErrClosed, dataplane.ErrExists, dataplane.ErrNotFound, dataplane.ErrInvalid, dataplane.ErrUnplaced,
		dataplane.ErrInUse, dataplane.ErrPermission, dataplane.ErrFull, dataplane.ErrDense, dataplane.ErrCostly, dataplane.ErrUnavailable, probe.ErrNotSupported,
	} {
		if !errors.Is(cross(t, err), err) {
			t.Errorf("%v does not cross", err)
		}
	}
}

func TestErrorsWithoutOrWithSeveralSentinelsCrossTheWire(t *testing.T) {
	if toStatus(nil) != nil || fromStatus(nil) != nil {
		t.Error("no error became one")
	}
	plain := cross(t, errors.New("no luck"))
	if plain.Error() != "no luck" || errors.Is(plain, dataplane.ErrUnavailable) {
		t.Errorf("a plain error became %q", plain)
	}
	both := cross(t, errors.Join(dataplane.ErrFull, fmt.Errorf("b: %w", dataplane.ErrInvalid)))
	if !errors.Is(both, dataplane.ErrFull) || !errors.Is(both, dataplane.ErrInvalid) {
		t.Errorf("joined errors became %v", both)
	}
	no := &probe.UnsupportedError{Feature: "native XDP", Object: "eth0", Reason: "driver has no ndo_bpf", Fix: "use generic"}
	var u *probe.UnsupportedError
	if err := cross(t, fmt.Errorf("attaching: %w", no)); !errors.As(err, &u) || *u != *no {
		t.Errorf("an unsupported error became %+v", u)
	}
	if err := cross(t, fmt.Errorf("x: %w", fs.ErrNotExist)); errors.Is(err, fs.ErrNotExist) {
		t.Error("fs.ErrNotExist crossed: it means a file of this side")
	}
	long := cross(t, fmt.Errorf("%w: %s", dataplane.ErrInvalid, strings.Repeat("ü", 1<<20)))
	if !errors.Is(long, dataplane.ErrInvalid) || len(long.Error()) > maxErrorText+64 || !strings.Contains(long.Error(), "bytes omitted") || !utf8.ValidString(long.Error()) {
		t.Errorf("a long error became one of %d bytes", len(long.Error()))
	}
}

// Errors that no server of ours made.
func TestStatusOfGRPCItselfBecomesASentinel(t *testing.T) {
	for _, test := range []struct {
		code codes.Code
		is   error
	}{
		{codes.Unavailable, dataplane.ErrUnavailable},
		{codes.Canceled, context.Canceled},
		{codes.DeadlineExceeded, context.DeadlineExceeded},
		{codes.Unimplemented, probe.ErrNotSupported},
	} {
		err := fromStatus(status.Error(test.code, "whatever"))
		if !errors.Is(err, test.is) || !strings.Contains(err.Error(), "whatever") {
			t.Errorf("%v became %v", test.code, err)
		}
	}
	for code := codes.Code(1); code < 20; code++ {
		if err := fromStatus(status.Error(code, "x")); err == nil {
			t.Errorf("%v became no error", code)
		}
	}
}

func FuzzErrors(f *testing.F) {
	f.Add("adding flow", uint16(3), "feature", "object")
	f.Add("\xff", uint16(0xffff), "\xfe\x00", "")
	f.Fuzz(func(t *testing.T, text string, which uint16, feature, object string) {
		var causes []error
		for i, s := range sentinels {
			if which&(1<<i) != 0 {
				causes = append(causes, s.err)
			}
		}
		if which&(1<<15) != 0 {
			causes = append(causes, &probe.UnsupportedError{Feature: feature, Object: object})
		}
		err := &remoteError{text: text, causes: causes}
		got := cross(t, err)
		for _, s := range sentinels {
			if errors.Is(got, s.err) != errors.Is(err, s.err) {
				t.Errorf("%q: %v is %v on this side", text, s.err, errors.Is(got, s.err))
			}
		}
		if utf8.ValidString(text) && len(text) <= maxErrorText && got.Error() != text {
			t.Errorf("text is %q, want %q", got, text)
		}
	})
}

// A peer may send any status at all.
func FuzzFromStatus(f *testing.F) {
	seed, _ := proto.Marshal(status.Convert(toStatus(&probe.UnsupportedError{Feature: "f"})).Proto())
	f.Add(seed)
	f.Fuzz(func(t *testing.T, b []byte) {
		var p spb.Status
		if proto.Unmarshal(b, &p) != nil {
			return
		}
		st := status.FromProto(&p)
		if err := fromStatus(st.Err()); (err == nil) != (st.Code() == codes.OK) {
			t.Errorf("status %v became %v", st.Code(), err)
		}
	})
}

// The end of the context kills the process. Then the call may see that the connection broke before it sees that its
// context has ended.
func TestAStartWhoseContextEndedReturnsTheContextsError(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	broke := fmt.Errorf("%w: error reading from server: EOF", dataplane.ErrUnavailable)
	if err := configureError(ctx, "p", nil, nil, broke); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want context.Canceled", err)
	}
}
