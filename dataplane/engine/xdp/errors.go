package xdp

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/xdp"
)

// translate adds the sentinels of package dataplane to an error of package xdp: callers know only those, and only those cross the
// wire. The text stays as it is.
func translate(err error) error {
	t := &translated{error: err}
	for _, s := range []struct{ from, to error }{
		{xdp.ErrInUse, dataplane.ErrInUse},
		{xdp.ErrPermission, dataplane.ErrPermission},
		{xdp.ErrFull, dataplane.ErrFull},
		{xdp.ErrIncompatible, dataplane.ErrIncompatible},
		{xdp.ErrDense, dataplane.ErrDense},
		{xdp.ErrCostly, dataplane.ErrCostly},
		{xdp.ErrInvalid, dataplane.ErrInvalid},
		{xdp.ErrUndone, backend.ErrUndone},
	} {
		if errors.Is(err, s.from) {
			t.is = append(t.is, s.to)
		}
	}
	if len(t.is) == 0 {
		return err
	}
	return t
}

// translated is an error with further sentinels.
type translated struct {
	error
	is []error
}

func (t *translated) Unwrap() []error { return append([]error{t.error}, t.is...) }

// mostCostly bounds the flows in an error. A costly packet may meet hundreds of them.
const mostCostly = 5

// withFlows adds to a CostError the names of the flows whose rules make the packet costly. Other errors it returns as they are.
func withFlows(err error, name func(*xdp.Rule) string) error {
	var costly *xdp.CostError
	if !errors.As(err, &costly) {
		return err
	}
	var names []string
	for i := range costly.Rules {
		if n := name(&costly.Rules[i]); n != "" && !slices.Contains(names[max(0, len(names)-1):], n) {
			names = append(names, n)
		}
	}
	more := ""
	if n := len(names) - mostCostly; n > 0 {
		names, more = names[:mostCostly], fmt.Sprintf(" and %d more", n)
	}
	return fmt.Errorf("%w by xdp.worst_cost: because of the flows %s%s", err, strings.Join(names, ", "), more)
}
