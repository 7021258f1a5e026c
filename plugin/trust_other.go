//go:build !unix

package plugin

// trusted has nothing to look at where files have no owner and mode.
func trusted(string) error { return nil }
