//go:build !linux

package xdp

import (
	"errors"

	"github.com/flowtally/flowtally/dataplane/engine/backend"
)

// noPolicies is a host without IPsec policies.
type noPolicies struct{}

func newPolicies(*backend.Netns) policies { return noPolicies{} }

func (noPolicies) available() bool               { return false }
func (noPolicies) watch() (policyChanges, error) { return nil, errors.ErrUnsupported }
func (noPolicies) tunnel() (string, error)       { return "", errors.ErrUnsupported }
