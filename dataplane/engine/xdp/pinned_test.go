package xdp

import (
	"slices"
	"testing"

	"github.com/flowtally/flowtally/dataplane/engine/backend"
)

// Places keep flows in order, and pinned flows keep their places where the order allows that.
func TestPlaces(t *testing.T) {
	was := map[string]pinned{"a": {place: 0}, "b": {place: 64}, "c": {place: 128}}
	for _, tt := range []struct {
		owners []string
		want   []uint32
	}{
		{[]string{"a", "b", "c"}, []uint32{0, 64, 128}},
		{[]string{"a", "new", "b", "c", "last"}, []uint32{0, 1, 64, 128, 192}},
		{[]string{"b", "a", "c"}, []uint32{64, 65, 128}},
		{[]string{"x", "y"}, []uint32{0, 64}},
	} {
		if got := (&Backend{}).places(make([]backend.Placed, len(tt.owners)), tt.owners, was); !slices.Equal(got, tt.want) {
			t.Errorf("%v: places %v, want %v", tt.owners, got, tt.want)
		}
	}
}
