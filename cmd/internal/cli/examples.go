package cli

// The text that --help of a command shows below its first line. Every line that starts with
// "flowtally" is parsed by a test.

// Help is shown by run --help.
func (*runCmd) Help() string {
	return `Launches the plugin, which counts with privilege, and serves the control socket of "flowtally flows". At SIGHUP it reads --config again and becomes that file, as "flowtally apply" does; a file with a mistake changes nothing. At SIGINT or SIGTERM it detaches its programs, unless xdp.keep_pins lets them go on counting; the mirror's last values stay readable, and totals go on at the next start.

Examples:

  flowtally run --config /etc/flowtally.yaml

  flowtally run --interface eth0 --flow 'web=tcp dport 443' --flow 'rest=any'

  flowtally run --backend sim --flow 'web=tcp dport 443' --socket - --embedded`
}

// Help is shown by instances --help.
func (*instancesCmd) Help() string {
	return `An instance leaves a mirror, which has its totals, and pins, which keep its programs on their hooks. The states are: running; kept (it was stopped, and xdp.keep_pins lets its programs count on); stopped (its mirror has the last values); dead (its process ended without a stop, so its programs may count, and drop, on); pins (no mirror tells how it ended).

Examples:

  flowtally instances

  flowtally instances -o json`
}

// Help is shown by clean --help.
func (*cleanCmd) Help() string {
	return `Prints what it removes and asks. It detaches programs by the paths of their pins, so it needs no configuration and no plugin. An instance that a process runs is refused. One that was stopped with xdp.keep_pins is not dead: it is removed by its name alone. The host's journal gets a line with the user and the process.

Examples:

  flowtally clean --instance lb

  flowtally clean --config /etc/flowtally.yaml --keep-mirror

  flowtally clean --all-dead --yes`
}

// Help is shown by detach --help.
func (*detachCmd) Help() string {
	return `For an emergency, such as a drop rule that matches too much. The programs are detached by the paths of their pins: the instance is not asked. Where it runs it goes on without programs, says so by a condition, and takes its hooks again when it is restarted. Its pinned counts stay.

Examples:

  flowtally detach --instance lb`
}

// Help is shown by apply --help.
func (*applyCmd) Help() string {
	return `The instance becomes the file: flows that are not there are added, changed ones are changed in their places, flows of an earlier file that are gone are removed. Everything changes, or nothing does. The flows that do not change are counted without a gap. Flows of "flowtally flows add" stay, unless the file has their names or --prune is given. The settings interfaces, mirror.counters, mirror.history_period, mirror.latency_counters, poll.period, poll.idle_period and xdp.keep_pins change as well. Another setting that differs is named, and nothing changes: restart the instance for it.

A line is printed for each change: "+ web" was added, "- old" was removed, "~ dns: count -> drop" was changed.

Examples:

  flowtally apply --dry-run

  flowtally apply -f /etc/flowtally.yaml

  flowtally apply -f edge.yaml --instance edge --prune -o json`
}

// Help is shown by get --help.
func (*getCmd) Help() string {
	return `Works while the writer is dead, and says so. A counter that was never sampled has no value: "-" in the table, null in JSON. The values of a sum are of one snapshot; counters of different kinds or units are never added up, and the note names the counters that a sum lacks.

Examples:

  flowtally get

  flowtally get -o json web dns

  flowtally get --strict --instance edge web

  flowtally get --label team=ops --direction ingress

  flowtally get --sum-by team -o json`
}

// Help is shown by top --help.
func (*topCmd) Help() string {
	return `A rate is the count between two samples, divided by the time between them; "-" where no new sample came. On a terminal the table is live: ? lists the keys, / filters, > and < change the order, enter shows all of one counter, space pauses, q quits. It waits for a mirror that does not exist yet. Where standard output is no terminal, tables are printed one after the other; with -o json one object for each look. NO_COLOR takes the colors out.

Examples:

  flowtally top --sort rate

  flowtally top --interval 100ms --sort bits 'tenant-*'

  flowtally top -o json --count 2

  flowtally top --count 2 --interval 5s web dns`
}

// Help is shown by watch --help.
func (*watchCmd) Help() string {
	return `Changes are written to the mirror's history every mirror.history_period. If they come faster than they are read, a line has the exact number of lost changes. In parentheses is the difference from the change before, or "-" if that one was not read, as for the first change of each counter.

Examples:

  flowtally watch web

  flowtally watch --history -o json

  flowtally watch --sum-by team --label 'team!=test'`
}

// Help is shown by wait --help.
func (*waitCmd) Help() string {
	return `Ends with 0 when the counter has reached the number, and prints it; with 1 at the timeout, at a signal, when the counter is removed, when the writer is gone, and when operations of a completion counter end in error meanwhile. Members of the group mirror.wait_group are woken at the end of a poll cycle; other processes poll once per cycle.

Examples:

  flowtally wait web --at-least 1000000

  flowtally wait near-sent --at-least 100000 --timeout 30s -o json`
}

// Help is shown by export --help.
func (*exportCmd) Help() string {
	return `Reads the mirror alone, needs no privilege, and follows the mirror over restarts. A counter that was never sampled has no series. /metrics is for Prometheus, /v1/counters is the JSON of "flowtally get". Series have the labels counter and direction, and the labels that --label-keys names.

Examples:

  flowtally export

  flowtally export --listen :9790 --label-keys team,action --web.config.file /etc/flowtally-web.yaml

  flowtally export --instance edge --otlp grpc://collector:4317 --otlp-period 15s 'web*'`
}

// Help is shown by flows add --help.
func (*flowsAddCmd) Help() string {
	return `Examples:

  flowtally flows add web 'ipv4 dst 192.0.2.10 tcp dport 443'

  flowtally flows add tenant-7 'vxlan vni 7 inner udp' --interface eth0 --label tenant=7

  flowtally flows add blocked 'ipv6 src 2001:db8::/32' --action drop --priority 10

  flowtally flows add -f flows.yaml`
}

// Help is shown by queue-pairs list --help.
func (*queuePairsListCmd) Help() string {
	return `The line "address" is for the other end, on its own host or in its own program. State RTS is connected; ERR is in error: the condition below says why, and connect mends it.

Examples:

  flowtally queue-pairs

  flowtally qp list -o json --instance edge`
}

// Help is shown by queue-pairs reserve --help.
func (*queuePairsReserveCmd) Help() string {
	return `A program takes the words on the socket INSTANCE.words beside the mirror: shm/words.Take in Go. Its RDMA device, or the program itself, counts completions there. The words stay reserved until release or the end of the instance; name lasting ones under words in the configuration.

Examples:

  flowtally queue-pairs reserve app

  flowtally qp reserve app -o json`
}

// Help is shown by queue-pairs release --help.
func (*queuePairsReleaseCmd) Help() string {
	return `A program that has the words goes on without a counter.

Examples:

  flowtally queue-pairs release app`
}

// Help is shown by queue-pairs connect --help.
func (*queuePairsConnectCmd) Help() string {
	return `A queue pair that is connected, or in error, is connected anew: outstanding operations end in error first. The connection does not survive a restart of the plugin, when numbers change: put a lasting one into the configuration.

Examples:

  flowtally queue-pairs connect storage 'gid=fe80::5054:ff:fe12:3456,qpn=17,psn=4660,addr=0x7f2a40000000,rkey=0x1f2'

  flowtally qp connect near`
}

// Help is shown by queue-pairs post --help.
func (*queuePairsPostCmd) Help() string {
	return `Exits with 1 if operations completed in error, and if it gave up, at --timeout or a signal; then it prints the completions so far, and posts no more. The counters of the queue pair have the posted operations, and the peer's counters the received ones: flowtally get shows both.

Examples:

  flowtally queue-pairs post near send --count 100000

  flowtally qp post near send --count 100000 --timeout 10s

  flowtally qp post near rdma_write --count 100 -o json`
}

// Help is shown by check --help.
func (*checkCmd) Help() string {
	return `Exits with 1 when an invariant of a mirror is broken, with 2 when a configuration has a mistake. A mirror of any owner is checked, and only read. Of a configuration it prints the expected cost of a packet, which it computes without BPF; "flowtally explain --classifier" prints more.

Examples:

  flowtally check

  flowtally check --mirror /run/flowtally/edge.mirror -o json

  flowtally check --config /etc/flowtally.yaml`
}

// Help is shown by doctor --help.
func (*doctorCmd) Help() string {
	return `A result is yes, no or inconclusive; inconclusive means that the test could not run, mostly for want of a privilege. The tests attach no program to an interface. An RDMA device is tested by use: flows without matching packets are made and removed.

Examples:

  flowtally doctor

  flowtally doctor eth0 eth1 --strict -o json

  flowtally doctor --config /etc/flowtally.yaml`
}

// Help is shown by completion --help.
func (*completionCmd) Help() string {
	return `Commands, flags, their values, interfaces and the names of counters are completed.

  source <(flowtally completion bash)

  source <(flowtally completion zsh)

  flowtally completion fish | source`
}
