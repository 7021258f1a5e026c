package child

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"sync"
	"syscall"

	"github.com/flowtally/flowtally/internal/verbpage"
)

// deathsInVerb is the number of crashes in one verb of one device after which the next process starts
// without the device.
const deathsInVerb = 2

// MaxLaunchCrashes bounds the crashes in verbs that one launch survives.
const MaxLaunchCrashes = 8

// Crashes counts crashes of plugin processes per verb and RDMA device. A device whose library crashes
// would end counting at every start. Without that device the other devices and XDP count.
type Crashes struct {
	mu       sync.Mutex
	deaths   map[verbCall]int
	count    int
	excluded map[string]string // reason by device; "" is libibverbs itself
}

// verbCall is a verb of a device.
type verbCall struct{ device, verb string }

// NewCrashes returns an empty count.
func NewCrashes() *Crashes {
	return &Crashes{deaths: make(map[verbCall]int), excluded: make(map[string]string)}
}

// Count returns the number of crashes.
func (c *Crashes) Count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.count
}

// Add counts p if it crashed in a verb. The second crash in one verb of a device excludes the device.
func (c *Crashes) Add(p *Process) {
	cause, ok := p.crash()
	if !ok || p.last.verb == "" {
		return
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	c.count++
	c.deaths[p.last]++
	if c.deaths[p.last] == deathsInVerb {
		c.excluded[p.last.device] = fmt.Sprintf("the plugin ended %d times in %s (at last: %s)", deathsInVerb, p.last.verb, cause)
	}
}

// Environment returns the variables that name the excluded devices to the next process.
func (c *Crashes) Environment() ([]string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.excluded) == 0 {
		return nil, nil
	}
	text, err := json.Marshal(c.excluded)
	if err != nil {
		return nil, fmt.Errorf("encoding the excluded devices: %w", err)
	}
	return []string{ExcludedEnv + "=" + string(text)}, nil
}

// crash returns the cause of a process's end, if a defect ended it. SIGKILL, SIGTERM, SIGINT and SIGHUP come
// from a person, or from a kernel that lacks memory, and say nothing about the current verb.
func (p *Process) crash() (cause string, ok bool) {
	if cause, ok = p.Ended(); !ok {
		return "", false
	}
	if p.cmd == nil || p.cmd.ProcessState == nil { // it was never started
		return "", false
	}
	if st, is := p.cmd.ProcessState.Sys().(syscall.WaitStatus); is && st.Signaled() {
		switch st.Signal() {
		case syscall.SIGKILL, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP:
			return "", false
		}
	}
	return cause, true
}

// Verbs opens the page of verbs in the plugin's process. It returns nil where the host gave none; a nil page
// is valid and records nothing.
func Verbs() (*verbpage.Page, error) {
	f, err := Inherited(VerbsFDEnv)
	if f == nil || err != nil {
		return nil, err
	}
	defer f.Close()
	return verbpage.Open(f)
}

// Excluded returns, in the plugin's process, the excluded RDMA devices and the reason for each.
func Excluded() (map[string]string, error) {
	text := os.Getenv(ExcludedEnv)
	if text == "" {
		return nil, nil
	}
	var excluded map[string]string
	if err := json.Unmarshal([]byte(text), &excluded); err != nil {
		return nil, fmt.Errorf("%s: %w", ExcludedEnv, err)
	}
	return excluded, nil
}

// Inherited returns the file of the descriptor that an environment variable names, or nil where the variable
// is not set. It marks the descriptor close-on-exec.
func Inherited(variable string) (*os.File, error) {
	fd := os.Getenv(variable)
	if fd == "" {
		return nil, nil
	}
	n, err := strconv.ParseUint(fd, 10, 16)
	if err != nil {
		return nil, fmt.Errorf("%s=%q: %w", variable, fd, err)
	}
	syscall.CloseOnExec(int(n))
	f := os.NewFile(uintptr(n), variable)
	if f == nil {
		return nil, fmt.Errorf("%s=%q: no such descriptor", variable, fd)
	}
	return f, nil
}
