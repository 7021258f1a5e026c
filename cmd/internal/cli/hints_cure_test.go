package cli

import (
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// A next step that does not work is worse than none. Each row of testdata/cure produces an error, takes the printed
// step and runs it. Then the failed command must succeed. Every next step in the sources needs such a row, or a reason
// in notCarriedOut. The test recognizes a step by its text in the sources, so a row cannot cover another step by
// mistake.
func TestNextStepsCure(t *testing.T) {
	c := &cures{steps: stepsOfCommands(t), cured: make(map[string]bool)}
	t.Run("rows", func(t *testing.T) {
		example, err := filepath.Abs("../../../configs/default.yaml")
		if err != nil {
			t.Fatal(err)
		}
		testscript.Run(t, testscript.Params{
			Setup: func(env *testscript.Env) error {
				env.Setenv("DEFAULT", example)
				env.Setenv("PUBLIC", t.TempDir())
				return publish(env.Getenv("PUBLIC"))
			},
			Condition: condition, Dir: "testdata/cure", RequireUniqueNames: true, RequireExplicitExec: true,
			Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
				"exits": cmdExits, "await": cmdAwait, "eventually": cmdEventually, "cure": c.cmd,
			},
		})
	})
	if all, _ := condition("netns"); t.Failed() || !all {
		return // a row that needs root was skipped
	}
	for _, step := range c.steps {
		_, excused := notCarriedOut[step]
		switch {
		case c.cured[step] && excused:
			t.Errorf("the next step %q is carried out, and notCarriedOut has a reason why not", step)
		case !c.cured[step] && !excused:
			t.Errorf("no row of testdata/cure carries out the next step %q", step)
		}
	}
	for step := range notCarriedOut {
		if !slices.Contains(c.steps, step) {
			t.Errorf("no command prints the next step %q of notCarriedOut", step)
		}
	}
	t.Logf("%d next steps are carried out, %d have a reason why not", len(c.cured), len(notCarriedOut))
}

// publish lets every user enter a directory and its parent.
func publish(dir string) error {
	return errors.Join(os.Chmod(filepath.Dir(dir), 0o755), os.Chmod(dir, 0o755))
}

// stepsOfCommands lists the next steps of package cli: those of sentinels, and those in calls of withHint.
func stepsOfCommands(t *testing.T) []string {
	steps := slices.Collect(maps.Values(hintsBySentinel(t)))
	for _, h := range ownHints(t) {
		steps = append(steps, h[2])
	}
	slices.Sort(steps)
	return slices.Compact(steps)
}

// cures records which next steps the rows of TestNextStepsCure have carried out.
type cures struct {
	steps []string
	mu    sync.Mutex
	cured map[string]bool
}

// cmd implements "cure [-by SCRIPT] COMMAND… [-- THEN…]".
//
// It runs COMMAND, which must fail and print a next step, and then runs the step as printed. The words FILE, NAME, UID and
// MATCH in the step are replaced by the variables of these names. If the step is in words rather than a command, SCRIPT
// does what it says; the variable STEP has the printed text. A step that starts an instance keeps running until the script
// ends.
//
// Finally THEN must succeed. Without a THEN, that is COMMAND again, unless the step already is the corrected COMMAND. In
// THEN, FLAGS stands for the flags at the beginning of the step, and QUOTED for its part between quotes.
func (c *cures) cmd(ts *testscript.TestScript, neg bool, args []string) {
	script := ""
	if len(args) > 1 && args[0] == "-by" {
		script, args = args[1], args[2:]
	}
	first, then, named := args, args, false
	if at := slices.Index(args, "--"); at >= 0 {
		first, then, named = args[:at], args[at+1:], true
	}
	if err := ts.Exec(first[0], first[1:]...); err == nil {
		ts.Fatalf("%v succeeds before its next step", first)
	}
	_, try, ok := strings.Cut(ts.ReadFile("stderr"), "\n  try: ")
	try, _, _ = strings.Cut(try, "\n")
	if !ok {
		ts.Fatalf("%v prints no next step", first)
	}
	step := c.stepOf(try)
	if step == "" {
		ts.Fatalf("the next step %q is not in the sources", try)
	}
	then, corrected := correct(ts, then, try)
	switch {
	case script == "true":
		ts.Fatalf("-by true carries out nothing")
	case script != "":
		script = strings.ReplaceAll(script, "STEP", filled(ts, try))
	case corrected:
		script = ":" // the step is in THEN
	default:
		script = filled(ts, try)
	}
	wait := time.Duration(0)
	if strings.Contains(script, "flowtally run ") {
		c.start(ts, script)
		wait = patience
	} else if err := ts.Exec("sh", "-c", script); err != nil {
		ts.Fatalf("the next step %q: %v", script, err)
	}
	if named || !strings.HasPrefix(step, wordAgain) && !strings.HasPrefix(step, wordSudo) {
		succeeds(ts, then, wait)
	}
	c.mu.Lock()
	c.cured[step] = true
	c.mu.Unlock()
}

// stepFlags matches the flags at the beginning of a step.
var stepFlags = regexp.MustCompile(`^(?:--?[a-z]+ (?:'[^']*'|[^ ']+) ?)+`)

// correct replaces FLAGS and QUOTED in a command by parts of the step. It also reports whether the command has either.
func correct(ts *testscript.TestScript, command []string, try string) (whole []string, corrected bool) {
	for _, word := range command {
		switch word {
		case "FLAGS":
			whole = append(whole, strings.Fields(stepFlags.FindString(filled(ts, try)))...)
		case "QUOTED":
			_, quoted, _ := strings.Cut(filled(ts, try), "'")
			quoted, _, _ = strings.Cut(quoted, "'")
			whole = append(whole, quoted)
		default:
			whole = append(whole, word)
			continue
		}
		corrected = true
	}
	return whole, corrected
}

// filled returns the command of a next step, with its placeholders replaced and without its comment.
func filled(ts *testscript.TestScript, try string) string {
	command := try
	if m := nextCommand.FindStringSubmatch(try); m != nil {
		command = m[1]
	}
	command, _, _ = strings.Cut(command, " # ")
	return regexp.MustCompile(`\b(FILE|NAME|UID|MATCH)\b`).ReplaceAllStringFunc(command, ts.Getenv)
}

// start runs a command until the script ends.
func (c *cures) start(ts *testscript.TestScript, script string) {
	program, err := exec.LookPath("sh")
	ts.Check(err)
	cmd := exec.Command(program, "-c", "exec "+script)
	cmd.Dir = ts.MkAbs(".")
	for _, v := range []string{"PATH", "HOME", "TMPDIR", "XDG_RUNTIME_DIR", "FLOWTALLY_SOCKET", "FLOWTALLY_MIRROR", "FLOWTALLY_INSTANCE"} {
		if value := ts.Getenv(v); value != "" {
			cmd.Env = append(cmd.Env, v+"="+value)
		}
	}
	ts.Check(cmd.Start())
	ts.Defer(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
}

// succeeds repeats a command until it succeeds, because an instance needs a moment to start.
func succeeds(ts *testscript.TestScript, command []string, wait time.Duration) {
	for deadline := time.Now().Add(wait); ; time.Sleep(50 * time.Millisecond) {
		err := ts.Exec(command[0], command[1:]...)
		if err == nil {
			return
		}
		if !time.Now().Before(deadline) {
			ts.Fatalf("after the next step %v still fails: %v", command, err)
		}
	}
}

// stepOf returns the next step in the sources whose text was printed, the longest where several fit.
func (c *cures) stepOf(printed string) (found string) {
	for _, step := range c.steps {
		command, comment, hasComment := strings.Cut(step, " # ")
		pattern := printedAs(command) + `( --.*)?`
		if hasComment {
			pattern += " # " + printedAs(comment)
		}
		if regexp.MustCompile("^"+pattern+"$").MatchString(printed) && len(step) > len(found) {
			found = step
		}
	}
	return found
}

// printedAs returns an expression for the printed form of a step. It matches anything in place of "…" and of the words
// for the failed command.
func printedAs(text string) string {
	return strings.NewReplacer("…", ".+", wordAgain, "flowtally .+", wordSudo, "sudo .+", "%s", ".+").Replace(regexp.QuoteMeta(text))
}

// notCarriedOut has the next steps without a row, each with the reason.
var notCarriedOut = map[string]string{
	// Carried out by a test in Go, which has what a script lacks.
	"AGAIN --yes":                  "TestDeadInstanceIsCleanedAndARunningOneDetached: it takes a dead instance",
	"flowtally clean --instance …": "TestDeadInstanceIsCleanedAndARunningOneDetached: the command is carried out there, and its cause is a bpffs that lets a process pin and not unpin",
	"flowtally instances # then: flowtally clean --instance NAME":                                                                  "the same",
	"stop it; in an emergency, also where it hangs: flowtally detach --instance …":                                                 "TestDeadInstanceIsCleanedAndARunningOneDetached: it takes a running instance with programs on a hook",
	"flowtally clean --instance NAME # gives up their counts; the release that made them takes its hooks again when it is started": "TestDeadInstanceIsCleanedAndARunningOneDetached has the command, and the tests of xdp the pins of another release",
	"decompress it first, where the file is yours: gunzip -k FILE":                                                                 "TestReplayOfAGzipBombNamesTheCause: it takes a capture that grows too much",

	// They need a privilege less, another user, or a tool.
	"SUDO": "needs a demo without namespaces; user.txtar carries out the same command of others",
	"SUDO # or give the process the capability (AmbientCapabilities= in its systemd unit)":   "a mirror of a user, which the command names then, is not one for root; user.txtar carries out the same command of others",
	"ulimit -n 8192 # as root, or LimitNOFILE=8192 in the systemd unit; then start it again": "Go raises the soft limit by itself, so the hard one is too low, and raising it takes CAP_SYS_RESOURCE, which containers lack; refused.txtar has the cause",
	"--plugin PATH names a binary that only root can write":                                  "TestNextStepMakesThePluginUsable (package plugin) carries out the command that is printed in its place",
	"capinfos or tcpdump -r names the fault too; take the capture again":                     "needs Wireshark's tools",
	"tcpdump -i NAME -w FILE writes a capture":                                               "needs tcpdump and traffic",
	"--interface NAME, which is one of …":                                                    "needs a real interface; the tests of selftest name veths",
	"install gcc, then: make build":                                                          "needs a machine without gcc",
	"make build, or --plugin PATH":                                                           "needs a tree that was not built",
	"install flowtally-plugin beside flowtally, or --plugin PATH, or --embedded":             "needs a machine without the plugin",

	"--interface NAME of an interface that is up; --peer ADDRESS tests its ingress, and --rdma-device NAME an RDMA device":        "the same",
	"--socket PATH # instance … counts, but listens elsewhere or not at all; a program that embeds it calls plugin.ListenControl": "flows.txtar has the cause; the program that embeds the instance knows the path",
	"a longer --timeout; a plugin that stands still for … is started again":                                                       "TestACommandSaysWhomItWaitsForAndGivesUp has the cause: a plugin that stands still",

	// Their causes last a moment, or are a defect.
	"look for a stuck process (state D) with ps, and for the kernel's reason with dmesg; then AGAIN": "needs a poller that is stuck before its first cycle",
	"again in a moment": "the cause is over before a script sees it",
	"again in a moment; if it stays so, look at the log of flowtally run": "the same",
	"AGAIN # goes on": "needs a signal between two lines of a script; wait.txtar sends it",
	"this is a defect of flowtally: report it with the text above and the flows":                 "needs a defect",
	"start it again: flowtally run --config FILE":                                                "an instance that ends removes its socket before it refuses calls",
	"flowtally run --config FILE # goes on with the totals; flowtally get shows the last values": "needs a writer that was killed under a waiting reader; wait.txtar does, and starts another",
	"stop flowtally run and start it again (systemctl restart flowtally); totals go on":          "apply.txtar does it",
	"flowtally version # flowtally and its plugin are of one release":                            "needs a plugin of another release",
	"flowtally doctor # and the log above with --log.level debug":                                "needs a plugin that ends at its start",

	// A person decides what to change.
	"--listen with another address; ss -ltnp names the program that has this one":                                                                             "export.txtar has the cause; export then runs until a signal",
	"correct the file or the path; its parts are tls_server_config, http_server_config and basic_auth_users, and its paths begin at its directory":            "the same",
	"mirror.history in the configuration, or flowtally top":                                                                                                   "top runs until a key",
	"a smaller --number; the first packet of a capture is 1":                                                                                                  "explain.txtar has the cause, and takes a packet with a smaller number",
	"flowtally check --config FILE # names flows that count nothing: remove these; or narrow the flows that match the same packets, such as by an address":    "TestCheckRefusesMoreMatchingFlowsThanProgramsCompare has the cause and the check",
	"flowtally check --config FILE # prints the cost; narrow the named flows by an address prefix or a port, or remove some; or allow more by xdp.worst_cost": "TestCheckRefusesACostlyConfigurationAndEachRemedyHelps has the cause and the check",
	"flowtally doctor # names the fault of the directory; or another --mirror PATH":                                                                           "place.txtar carries out the command that doctor prints",
	"flowtally doctor # shows the room that is left; mirror.counters and mirror.latency_counters are limits":                                                  "TestMirrorThatDoesNotFitIsRefusedWhole has the cause and doctor",
	"flowtally doctor # shows the room that is left; mirror.counters, mirror.latency_counters and xdp.max_flows are limits":                                   "the same",
	"flowtally doctor # tests each backend here":                                                                                                              "what doctor prints is carried out by its own tests",
	"flowtally queue-pairs list # then: flowtally queue-pairs connect NAME [ADDRESS]":                                                                         "the commands that meet it have a next step of their own, with the name",
	"flowtally queue-pairs list # has the reason":                                                                                                             "needs a device that reports an error",
	"flowtally queue-pairs list # shows the outstanding operations; a send waits until the other end has receives posted":                                     "needs a device that completes nothing",
}
