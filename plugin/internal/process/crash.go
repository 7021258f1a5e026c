package plugin

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"sync"
	"syscall"

	"github.com/flowtally/flowtally/internal/verbpage"
)

const (
	// verbsFDEnv names the descriptor of the page in which the plugin names each verb before it calls it.
	verbsFDEnv = "FLOWTALLY_PLUGIN_VERBS_FD"
	// excludedEnv names the RDMA devices that the plugin is to leave alone, and why, as a JSON object.
	excludedEnv = "FLOWTALLY_PLUGIN_EXCLUDED"
)

// deathsInVerb is how many processes die in one verb of one device until the next one is started
// without the device.
const deathsInVerb = 2

// launchDeaths bounds the deaths in verbs that one launch survives.
const launchDeaths = 8

// blame counts in which verbs of which RDMA devices plugin processes died. A device whose library crashes
// would end counting at every start; without that device the other devices, and XDP, count.
type blame struct {
	mu       sync.Mutex
	deaths   map[verbCall]int
	noted    int
	excluded map[string]string // by device; "" is libibverbs itself
}

// count returns how many deaths were noted.
func (b *blame) count() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.noted
}

type verbCall struct{ device, verb string }

func newBlame() *blame {
	return &blame{deaths: make(map[verbCall]int), excluded: make(map[string]string)}
}

// note counts a process that crashed in a verb. At the second death in one verb it excludes the device.
func (b *blame) note(c *child) {
	cause, ok := c.crash()
	if !ok || c.last.verb == "" {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.noted++
	if b.deaths[c.last]++; b.deaths[c.last] == deathsInVerb {
		b.excluded[c.last.device] = fmt.Sprintf("the plugin ended %d times in %s (at last: %s)", deathsInVerb, c.last.verb, cause)
	}
}

// environment returns the variables that name the excluded devices to the next process.
func (b *blame) environment() ([]string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.excluded) == 0 {
		return nil, nil
	}
	text, err := json.Marshal(b.excluded)
	if err != nil {
		return nil, fmt.Errorf("naming the devices that are left alone: %w", err)
	}
	return []string{excludedEnv + "=" + string(text)}, nil
}

// crash returns why a process ended, if a defect ended it. SIGKILL, SIGTERM, SIGINT and SIGHUP are sent by
// a person, or by a kernel that lacks memory: they are no sign of a defect in the verb that was under way.
func (c *child) crash() (cause string, ok bool) {
	if cause, ok = c.ended(); !ok {
		return "", false
	}
	if c.cmd == nil || c.cmd.ProcessState == nil { // it was never started
		return "", false
	}
	if st, is := c.cmd.ProcessState.Sys().(syscall.WaitStatus); is && st.Signaled() {
		switch st.Signal() {
		case syscall.SIGKILL, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP:
			return "", false
		}
	}
	return cause, true
}

// Verbs returns the page that the host reads when the process has died. A plugin's main function hands it to
// engine.Options.Calls. It is nil, which is valid and names no verb, where the host gave none.
func Verbs() (*verbpage.Page, error) {
	f, err := inherited(verbsFDEnv)
	if f == nil || err != nil {
		return nil, err
	}
	defer f.Close()
	return verbpage.Open(f)
}

// Excluded returns the RDMA devices that the plugin is to leave alone, and why. A plugin's main function hands
// them to engine.Options.Excluded.
func Excluded() (map[string]string, error) {
	text := os.Getenv(excludedEnv)
	if text == "" {
		return nil, nil
	}
	var excluded map[string]string
	if err := json.Unmarshal([]byte(text), &excluded); err != nil {
		return nil, fmt.Errorf("%s: %w", excludedEnv, err)
	}
	return excluded, nil
}

// inherited returns the file of the descriptor that an environment variable names, or nil where the variable
// is not set. It marks the descriptor close-on-exec.
func inherited(variable string) (*os.File, error) {
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
