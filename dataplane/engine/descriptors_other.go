//go:build !unix

package engine

import "github.com/flowtally/flowtally/dataplane"

func enoughDescriptors(dataplane.Config) error { return nil }
