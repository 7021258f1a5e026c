package vm

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
)

// Paths that both sides of the machine's wall agree on.
const (
	ScriptPath = "/etc/flowtally-vm.json" // the Script, in the initramfs
	EventsPath = "/dev/ttyS1"             // where the first process writes its events
)

// Script is the work of a machine before it powers off.
type Script struct {
	Modules []string // guest paths, in the order of loading
	Steps   []Step
}

// Step is one program to run. Its input is empty.
type Step struct {
	Name    string
	Args    []string // the program's path first
	Env     []string // in addition to PATH, HOME and TMPDIR
	Dir     string
	Seconds int // after which it is killed; 0 means 60
}

// Event is one line from the first process, as JSON. Exactly one of the pointers is set, or Ready,
// or Done, or Fatal.
type Event struct {
	Ready  string  `json:",omitempty"` // the modules are loaded; the kernel's release
	Output *Output `json:",omitempty"`
	Exit   *Exit   `json:",omitempty"`
	Log    *Log    `json:",omitempty"`
	Fatal  string  `json:",omitempty"` // the failure that ended the script early
	Done   bool    `json:",omitempty"` // every step ran; the machine powers off
}

// Output is a piece of a step's output.
type Output struct {
	Step   string
	Stderr bool `json:",omitempty"`
	Data   []byte
}

// Exit is the end of a step.
type Exit struct {
	Step  string
	Code  int    // as of a shell: 128 and the signal where one ended it
	Error string `json:",omitempty"` // why it could not be run, or was killed
	Took  time.Duration
}

// Log is a line of the kernel's log at warning or above.
type Log struct {
	Step  string `json:",omitempty"` // after which it was read; "" before the first one
	Level int    // 4 is a warning, 0 an emergency
	Text  string
}

// Warning is the least severe level of the kernel's log that a [Log] has.
const Warning = 4

// Result of a script.
type Result struct {
	Release string // of the kernel that ran
	Steps   map[string]*StepResult
	Log     []Log // to the end of the last step
}

// StepResult is the exit and the output of a step.
type StepResult struct {
	Exit
	Stdout, Stderr []byte
}

// ErrIncomplete is the error of events that end before the script does: the machine
// crashed, hung or was killed.
var ErrIncomplete = errors.New("the machine ended before its script")

// Collect reads the events to their end. After an error it returns the events until then, too.
func Collect(r io.Reader) (*Result, error) {
	res := &Result{Steps: make(map[string]*StepResult)}
	step := func(name string) *StepResult {
		if res.Steps[name] == nil {
			res.Steps[name] = &StepResult{Exit: Exit{Step: name, Code: -1}}
		}
		return res.Steps[name]
	}
	lines := bufio.NewReader(r)
	for n := 1; ; n++ {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) { // a line without an end was cut off
			return res, ErrIncomplete
		}
		if err != nil {
			return res, fmt.Errorf("reading events: %w", err)
		}
		var e Event
		if err := json.Unmarshal(line, &e); err != nil {
			return res, fmt.Errorf("reading event %d, %.80q: %w", n, line, err)
		}
		switch {
		case e.Ready != "":
			res.Release = e.Ready
		case e.Output != nil && e.Output.Stderr:
			s := step(e.Output.Step)
			s.Stderr = append(s.Stderr, e.Output.Data...)
		case e.Output != nil:
			s := step(e.Output.Step)
			s.Stdout = append(s.Stdout, e.Output.Data...)
		case e.Exit != nil:
			step(e.Exit.Step).Exit = *e.Exit
		case e.Log != nil:
			res.Log = append(res.Log, *e.Log)
		case e.Fatal != "":
			return res, fmt.Errorf("inside the machine: %s", e.Fatal)
		case e.Done:
			return res, nil
		}
	}
}
