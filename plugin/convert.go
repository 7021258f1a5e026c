package plugin

import (
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/flowtally/flowtally/dataplane"
)

// What the conversions between the types of the wire and those of package dataplane share.

// invalid makes an error that satisfies ErrInvalid.
func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %w", dataplane.ErrInvalid, fmt.Errorf(format, args...))
}

// keyOf returns the key of a value in a map that is one to one.
func keyOf[K, V comparable](m map[K]V, v V) (K, bool) {
	for k, w := range m {
		if w == v {
			return k, true
		}
	}
	var zero K
	return zero, false
}

// text replaces invalid UTF-8 in a string of the plugin, which protobuf could not carry.
func text(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

func timeToProto(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

// timeFromProto returns the zero time for an absent or invalid time.
func timeFromProto(t *timestamppb.Timestamp) time.Time {
	if t.CheckValid() != nil {
		return time.Time{}
	}
	return t.AsTime()
}

// texts returns words of a configuration as the protocol has them.
func texts[W ~string](list []W) (out []string) {
	for _, w := range list {
		out = append(out, string(w))
	}
	return out
}

// words is the reverse of texts.
func words[W ~string](list []string) (out []W) {
	for _, w := range list {
		out = append(out, W(w))
	}
	return out
}
