package plugin

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/probe"
)

// Errors of [Launch] and [Client.Close], beside those of package dataplane.
var (
	// ErrStart: the plugin process failed before it served the protocol. The text has the cause and the last lines of
	// its output.
	ErrStart = errors.New("plugin did not start")
	// ErrIncompatible: the plugin speaks no protocol version of this program. The text names the side to upgrade.
	ErrIncompatible = errors.New("incompatible plugin")
	// ErrUntrusted: root starts no binary that another user could have written. The text names the file and the
	// change that makes it trusted.
	ErrUntrusted = errors.New("untrusted plugin")
	// ErrLeft: a plugin is dead, and what it left in the kernel could not be removed.
	ErrLeft = errors.New("removing what the plugin left attached and pinned")
)

// stepError is an error that a command mends.
type stepError struct {
	error
	step string
}

func (e *stepError) Unwrap() error { return e.error }

// NextStep returns the command that mends the cause, or "".
func (e *stepError) NextStep() string { return e.step }

// domain marks the ErrorInfo details of flowtally.
const domain = "flowtally"

// maxErrorText bounds the text of an error on the wire, in bytes: gRPC sends it in a header, whose size both ends
// bound. A cut text says how many bytes are missing.
const maxErrorText = 32 << 10

type sentinel struct {
	err    error
	reason string
	code   codes.Code
}

// sentinels in the order in which they choose the status code: when an error
// satisfies several, the first gives the code and all travel as details.
var sentinels = []sentinel{
	{dataplane.ErrClosed, "CLOSED", codes.FailedPrecondition},
	{dataplane.ErrUnavailable, "UNAVAILABLE", codes.Unavailable},
	{dataplane.ErrInvalid, "INVALID", codes.InvalidArgument},
	{dataplane.ErrExists, "EXISTS", codes.AlreadyExists},
	{dataplane.ErrNotFound, "NOT_FOUND", codes.NotFound},
	{dataplane.ErrNotConnected, "NOT_CONNECTED", codes.FailedPrecondition},
	{dataplane.ErrPermission, "PERMISSION", codes.PermissionDenied},
	{dataplane.ErrInUse, "IN_USE", codes.FailedPrecondition},
	{dataplane.ErrFull, "FULL", codes.ResourceExhausted},
	{dataplane.ErrDense, "DENSE", codes.ResourceExhausted},
	{dataplane.ErrCostly, "COSTLY", codes.ResourceExhausted},
	{dataplane.ErrUnplaced, "UNPLACED", codes.FailedPrecondition},
	{dataplane.ErrRestart, "RESTART", codes.FailedPrecondition},
	{dataplane.ErrIncompatible, "INCOMPATIBLE", codes.FailedPrecondition},
	{probe.ErrNotSupported, "NOT_SUPPORTED", codes.Unimplemented},
	{context.DeadlineExceeded, "DEADLINE_EXCEEDED", codes.DeadlineExceeded},
	{context.Canceled, "CANCELED", codes.Canceled},
}

// remoteError is an error that crossed the wire: its text, and the sentinels that it satisfied on the other side.
type remoteError struct {
	text   string
	causes []error
}

func (e *remoteError) Error() string   { return e.text }
func (e *remoteError) Unwrap() []error { return e.causes }

// toStatus converts an error of a Service to a status with its text and its sentinels. An error that satisfies no
// sentinel travels as codes.Unknown with its text.
func toStatus(err error) error {
	if err == nil {
		return nil
	}

	code := codes.Unknown
	var details []protoadapt.MessageV1
	for _, s := range sentinels {
		if !errors.Is(err, s.err) {
			continue
		}
		if code == codes.Unknown {
			code = s.code
		}
		details = append(details, &errdetails.ErrorInfo{Domain: domain, Reason: s.reason, Metadata: unsupported(s.err, err)})
	}

	st := status.New(code, clip(err.Error()))
	if with, derr := st.WithDetails(details...); derr == nil {
		st = with
	}
	return st.Err()
}

// unsupported returns the fields of an UnsupportedError, so that errors.As finds it on the other side.
func unsupported(sentinel, err error) map[string]string {
	var u *probe.UnsupportedError
	if sentinel != probe.ErrNotSupported || !errors.As(err, &u) {
		return nil
	}
	return map[string]string{
		"feature": clip(u.Feature), "object": clip(u.Object), "reason": clip(u.Reason), "fix": clip(u.Fix),
	}
}

// fromStatus is the inverse of toStatus. An error of gRPC itself has only a code: a broken connection becomes
// ErrUnavailable, and an unknown call ErrNotSupported.
func fromStatus(err error) error {
	if err == nil {
		return nil
	}
	st, ok := status.FromError(err)
	if !ok {
		return err
	}

	e := &remoteError{text: st.Message()}
	for _, d := range st.Details() {
		info, ok := d.(*errdetails.ErrorInfo)
		if !ok || info.GetDomain() != domain {
			continue
		}
		if cause := causeOf(info); cause != nil {
			e.causes = append(e.causes, cause)
		}
	}
	if len(e.causes) > 0 {
		return e
	}

	switch st.Code() {
	case codes.Unavailable:
		return fmt.Errorf("%w: %s", dataplane.ErrUnavailable, st.Message())
	case codes.Canceled:
		e.causes = []error{context.Canceled}
	case codes.DeadlineExceeded:
		e.causes = []error{context.DeadlineExceeded}
	case codes.Unimplemented:
		return &probe.UnsupportedError{
			Feature: "this call", Object: "the plugin", Reason: st.Message(),
			Fix: "use flowtally and flowtally-plugin of one release",
		}
	}
	return e
}

func causeOf(info *errdetails.ErrorInfo) error {
	for _, s := range sentinels {
		if s.reason != info.GetReason() {
			continue
		}
		if m := info.GetMetadata(); s.err == probe.ErrNotSupported && len(m) > 0 {
			return &probe.UnsupportedError{
				Feature: m["feature"], Object: m["object"], Reason: m["reason"], Fix: m["fix"],
			}
		}
		return s.err
	}
	return nil
}

// clip returns s as valid UTF-8, which protobuf requires, and of bounded size.
func clip(s string) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= maxErrorText {
		return s
	}
	cut := maxErrorText
	for !utf8.RuneStart(s[cut]) {
		cut--
	}
	return fmt.Sprintf("%s… (%d bytes omitted)", s[:cut], len(s)-cut)
}
