package xdp

import (
	"errors"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/xdp"
)

// translate adds to an error of package xdp the sentinel of package dataplane that crosses the wire. The text stays.
func translate(err error) error {
	t := &translated{error: err}
	for _, s := range []struct{ from, to error }{
		{xdp.ErrInUse, dataplane.ErrInUse}, {xdp.ErrPermission, dataplane.ErrPermission}, {xdp.ErrFull, dataplane.ErrFull},
		{xdp.ErrIncompatible, dataplane.ErrIncompatible}, {xdp.ErrDense, dataplane.ErrDense},
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

// translated is an error that satisfies further sentinels.
type translated struct {
	error
	is []error
}

func (t *translated) Unwrap() []error { return append([]error{t.error}, t.is...) }
