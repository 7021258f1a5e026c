package xdp

import (
	"errors"
	"fmt"
	"testing"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/xdp"
)

func TestTranslatedErrorsSatisfyTheSentinelsOfBothPackages(t *testing.T) {
	if err := translate(fmt.Errorf("adding a rule: %w", xdp.ErrFull)); !errors.Is(err, dataplane.ErrFull) || !errors.Is(err, xdp.ErrFull) {
		t.Error(err)
	}
}
