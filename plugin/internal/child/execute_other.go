//go:build !linux

package child

// execute keeps the path: only Linux executes a descriptor. Only trusted users can replace the file.
func (p *Process) execute() {}

// NameProcess does nothing: only Linux names a process after a descriptor.
func NameProcess() {}

// Conceal does nothing: the flag is Linux's.
func Conceal() error { return nil }
