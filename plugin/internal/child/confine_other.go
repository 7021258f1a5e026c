//go:build !linux

package child

// startConfined starts the command: capabilities are Linux's.
func (p *Process) startConfined() error { return p.cmd.Start() }
