//go:build !linux

package plugin

// startConfined starts the command: capabilities are Linux's.
func (c *child) startConfined() error { return c.cmd.Start() }
