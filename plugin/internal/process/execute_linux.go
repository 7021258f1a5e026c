package plugin

import (
	"os"
	"path/filepath"
	"strconv"
)

// execute makes the child execute the descriptor that was checked, where there is one. The
// descriptor stays open in the child, since the interpreter of a script opens it by this name.
func (c *child) execute() {
	if c.file == nil {
		return
	}
	c.cmd.Path = "/proc/self/fd/" + strconv.Itoa(3+len(c.cmd.ExtraFiles))
	c.cmd.ExtraFiles = append(c.cmd.ExtraFiles, c.file)
}

// nameProcess gives the process the name of its file: of a descriptor that was executed the
// kernel takes the number.
func nameProcess() {
	_ = os.WriteFile("/proc/self/comm", []byte(filepath.Base(os.Args[0])), 0)
}
