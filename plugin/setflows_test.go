package plugin

import (
	"errors"
	"testing"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/flow"
)

// A rename with a name that is no UTF-8 has the error that an instance returns for it: protobuf would refuse the
// message.
func TestRenameThatIsNotUTF8HasTheErrorOfAnInstance(t *testing.T) {
	for _, c := range []struct {
		from, to string
		want     error
	}{
		{"a", "b", nil},
		{"a\xff", "b", dataplane.ErrNotFound},
		{"a", "b\xff", dataplane.ErrInvalid},
	} {
		msg, err := setToProto([]flow.Flow{{Name: "b"}}, dataplane.SetOptions{Renames: map[string]string{c.from: c.to}})
		if !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
			t.Errorf("renaming %q to %q: %v, want %v", c.from, c.to, err, c.want)
		}
		if err == nil && msg.Renames[c.from] != c.to {
			t.Errorf("the message renames %v", msg.Renames)
		}
	}
}
