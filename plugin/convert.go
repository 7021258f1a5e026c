package plugin

import (
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/flowtally/flowtally/dataplane"
)

// Helpers for the conversions between protobuf messages and the types of package dataplane.

// invalid returns an error that satisfies ErrInvalid.
func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %w", dataplane.ErrInvalid, fmt.Errorf(format, args...))
}

// keyOf looks up a key by its value, in a map with unique values.
func keyOf[K, V comparable](m map[K]V, v V) (K, bool) {
	for k, w := range m {
		if w == v {
			return k, true
		}
	}
	var zero K
	return zero, false
}

// text replaces invalid UTF-8, which protobuf cannot encode.
func text(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

func timeToProto(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

// timeFromProto returns the zero time for a missing or invalid time.
func timeFromProto(t *timestamppb.Timestamp) time.Time {
	if t.CheckValid() != nil {
		return time.Time{}
	}
	return t.AsTime()
}

// texts converts words of any type to strings.
func texts[W ~string](list []W) (out []string) {
	for _, w := range list {
		out = append(out, string(w))
	}
	return out
}

// words is the inverse of texts.
func words[W ~string](list []string) (out []W) {
	for _, w := range list {
		out = append(out, W(w))
	}
	return out
}
