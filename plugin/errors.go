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

// Errors of [Launch] and [Client.Close], in addition to those of package dataplane.
var (
	// ErrStart means that the plugin process failed before it was ready. The text has the cause and its last output.
	ErrStart = errors.New("plugin did not start")
	// ErrIncompatible means that plugin and host have no protocol version in common. The text says which one to upgrade.
	ErrIncompatible = errors.New("incompatible plugin")
	// ErrUntrusted means that this process runs as root, and another user could have written the binary. The text has the
	// command that makes it trusted.
	ErrUntrusted = errors.New("untrusted plugin")
	// ErrLeft means that the plugin is dead and its programs or pins could not be removed from the kernel.
	ErrLeft = errors.New("removing what the plugin left attached and pinned")
)

// stepError is an error with a command that fixes its cause.
type stepError struct {
	error
	step string
}

func (e *stepError) Unwrap() error { return e.error }

// NextStep returns the command.
func (e *stepError) NextStep() string { return e.step }

// domain identifies the ErrorInfo details of flowtally.
const domain = "flowtally"

// maxErrorText limits the text of an error in bytes. gRPC sends it in a header, and both ends limit the size of headers.
const maxErrorText = 32 << 10

type sentinel struct {
	err    error
	reason string
	code   codes.Code
}

// sentinels lists the errors that cross the wire. If an error satisfies several, all are sent as details, and the first in
// this list determines the status code.
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

// remoteError is an error from the other side: its text, and the sentinels it satisfied there.
type remoteError struct {
	text   string
	causes []error
}

func (e *remoteError) Error() string   { return e.text }
func (e *remoteError) Unwrap() []error { return e.causes }

// toStatus converts an error of a Service for the wire. Without a sentinel it becomes codes.Unknown with its text.
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

// unsupported returns the fields of an UnsupportedError, so that errors.As finds it again on the other side.
func unsupported(sentinel, err error) map[string]string {
	var u *probe.UnsupportedError
	if sentinel != probe.ErrNotSupported || !errors.As(err, &u) {
		return nil
	}
	return map[string]string{
		"feature": clip(u.Feature), "object": clip(u.Object), "reason": clip(u.Reason), "fix": clip(u.Fix),
	}
}

// fromStatus is the inverse of toStatus. Errors of gRPC itself have only a code: a lost connection becomes ErrUnavailable,
// and a call that the other side does not know becomes ErrNotSupported.
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

// clip makes s valid UTF-8, which protobuf requires, and cuts a long text. A cut text says how many bytes are missing.
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
