//go:build !linux

package xdp

import "github.com/flowtally/flowtally/dataplane/engine/backend"

func newPolicies(*backend.Netns) policies { return noPolicies{} }
