//go:build !linux

package flowrows

import (
	"context"
	"errors"

	"github.com/flowtally/flowtally/internal/bench"
)

var errSystem = errors.New("it takes Linux")

type ground struct{}

// Preload has no kernel to preload.
func Preload(string) (end func() error, err error) { return func() error { return nil }, nil }

func (s *site) start(context.Context, kind, int) (*subject, error)    { return nil, errSystem }
func (s *site) addByCommand(context.Context, *subject) (int64, error) { return 0, errSystem }
func (s *subject) anonymous(context.Context) (bytes int64, err error) { return 0, errSystem }
func (s *site) hookRows(int, int) []bench.Row                         { return nil }
func (s *site) setRows(int, string, bool, float64, float64, float64) []bench.Row {
	return nil
}
