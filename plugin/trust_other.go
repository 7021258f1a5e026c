//go:build !unix

package plugin

import "os"

// openTrusted has nothing to look at where files have no owner and mode.
func openTrusted(string) (*os.File, error) { return nil, nil }

func trustDir(string) error { return nil }
