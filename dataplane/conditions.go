package dataplane

import "time"

// Severity of a condition.
type Severity uint8

const (
	Low    Severity = iota // counting is right; something could be better
	Medium                 // counting is right but costs more or covers less than asked
	High                   // some flows are not counted, or counts may be wrong
)

// Condition is a state that needs attention. It lasts as long as its cause.
type Condition struct {
	Code     ConditionCode
	Severity Severity // fixed for each code, except that [CodeTCXBefore], [CodeXDPBeside] and [CodeXDPGenericSCTP] can be Low
	Object   string   // the interface, device, flow, queue pair or file
	Text     string   // the state and its cause, for a person
	Fix      string   // the next step, a command if possible
	Since    time.Time
}

// ConditionCode identifies a kind of condition, for programs and for alerts. Codes do not change between versions.
type ConditionCode string

// The codes of all conditions. docs/conditions.md says what each means and how to end it.
const (
	CodeInterfaceMissing     ConditionCode = "interface-missing"
	CodeInterfaceRefused     ConditionCode = "interface-refused"
	CodeFlowRefused          ConditionCode = "flow-refused"
	CodePinsLost             ConditionCode = "pins-lost"
	CodeSourceUnreadable     ConditionCode = "source-unreadable"
	CodeMirrorLost           ConditionCode = "mirror-lost"
	CodePluginRestarting     ConditionCode = "plugin-restarting"
	CodeRDMACrash            ConditionCode = "rdma-crash"
	CodeRDMAReadErrors       ConditionCode = "rdma-read-errors"
	CodeRDMAAuditDiffers     ConditionCode = "rdma-audit-differs"
	CodeRDMARuleStuck        ConditionCode = "rdma-rule-stuck"
	CodeQueuePairError       ConditionCode = "queue-pair-error"
	CodeQueuePairLost        ConditionCode = "queue-pair-lost"
	CodeQueuePairUnconnected ConditionCode = "queue-pair-unconnected"

	CodeQueuePairSource ConditionCode = "queue-pair-source"
	CodeWordsSocket     ConditionCode = "words-socket"
	CodeWordsAbandoned  ConditionCode = "words-abandoned"
	CodeWordsBackwards  ConditionCode = "words-backwards"
	CodeRDMADeviceLost  ConditionCode = "rdma-device-lost"
	CodeXDPGeneric      ConditionCode = "xdp-generic"
	CodeXDPGenericSCTP  ConditionCode = "xdp-generic-sctp"
	CodeTCXBefore       ConditionCode = "tcx-before"
	CodeVLANOffload     ConditionCode = "vlan-offload"
	CodeXDPMerged       ConditionCode = "xdp-merged"
	CodeXDPBeside       ConditionCode = "xdp-beside"

	CodeInterfacesStacked ConditionCode = "interfaces-stacked"
	CodeIPsecTunnel       ConditionCode = "ipsec-tunnel"

	CodeRDMABudget   ConditionCode = "rdma-budget"
	CodeRDMAPortDown ConditionCode = "rdma-port-down"
	CodeMirrorRemade ConditionCode = "mirror-remade"
	CodeMirrorFull   ConditionCode = "mirror-full"
	CodePollOverrun  ConditionCode = "poll-overrun"

	CodePluginUnconfined ConditionCode = "plugin-unconfined"
)

// conditionInfo documents one code. A raised [Condition] has a more specific text and fix, which name the object and the
// cause.
type conditionInfo struct {
	Code     ConditionCode
	Severity Severity
	Text     string
	Fix      string
}

// conditionInfos documents every code, worst first. "make generate" writes docs/conditions.md from it.
var conditionInfos = []conditionInfo{
	{CodeInterfaceMissing, High,
		"A configured interface that is not optional does not exist, or was renamed, or no interface matches a configured " +
			"pattern. Its flows are not counted on it.",
		"Create the interface again: counting resumes by itself. If the host may lack it: `optional: true`."},
	{CodeInterfaceRefused, High,
		"The interface exists, but attaching to it failed, for example because another program holds the hook.",
		"Remove the cause that the text names: counting resumes by itself. Where the driver lacks the configured mode: leave `mode` " +
			"out, and run `flowtally apply`."},
	{CodeXDPGenericSCTP, High,
		"Generic XDP counts on a device that receives buffers of this host: a veth, a bridge, a VLAN device and the like. Linux " +
			"makes each buffer linear for generic XDP, whatever the program does, and crashes when it then forwards a buffer of " +
			"SCTP (seen with 6.12 and 7.3). The severity is Low while the kernel has no SCTP. The kernel loads SCTP when any user " +
			"opens such a socket. From then on flowtally takes no further interface of this kind in generic mode.",
		"Write `mode: tcx` for the interface, or `native` where the driver has it, and run `flowtally apply`. Kernels before 6.6 " +
			"have no TCX: there keep SCTP out, by `modprobe -r sctp` and a line `install sctp /bin/false` in " +
			"`/etc/modprobe.d/sctp.conf`."},
	{CodeFlowRefused, High,
		"With `start: degraded`: no backend can count a flow of the configuration, or the tables or the mirror have no room " +
			"for it. The text has the reason of each backend. The flow has no counter. It keeps its place in the order of the " +
			"configuration: once it is counted, it wins over the flows behind it.",
		"Remove the cause that the text names: the flow is tried again when interfaces, devices or other flows change. Or " +
			"remove the flow from the configuration, then `flowtally apply`."},
	{CodePinsLost, High,
		"Pins were removed, or the bpffs was unmounted, while the instance runs. Packets are counted, and counting would " +
			"end with the process. The instance pins the maps and links that it holds open again, within 2 s. The text " +
			"gives the reason if it cannot; a stop with `keep_pins` then fails and reports that it detached.",
		"After an unmount of /sys/fs/bpf: `mount -t bpf -o mode=0700 bpf /sys/fs/bpf`. Otherwise remove the cause that the text names."},
	{CodeSourceUnreadable, High,
		"The poller cannot read the counters of a backend. Values do not change.",
		"Restart the instance: totals go on. Report the text if it happens again."},
	{CodeMirrorLost, High,
		"The file of the mirror was removed, replaced, truncated or overwritten, and cannot be made again. A reader that " +
			"opens the mirror now does not find the values.",
		"Remove the cause that the text names: the mirror is made again within a second."},
	{CodePluginRestarting, High,
		"The plugin process ended. The kernel counts, and values in the mirror do not change until the plugin runs again.",
		"Read the last log lines of the plugin. Starts are tried after pauses of 0.1 s, growing to 10 s."},
	{CodeRDMACrash, High,
		"A process that tested an RDMA device crashed in its library or did not return, or the plugin died twice in the " +
			"same verb of the device. The device is not used: XDP counts its flows where it can, and its queue pairs are " +
			"not counted.",
		"Install another release of rdma-core, or of the device's own libraries, and start the instance again."},
	{CodeRDMAReadErrors, High,
		"Counters of a device cannot be read. Their values grow old.",
		"Look for firmware errors in `dmesg`. Reading is tried again, at most every 5 s. After eight failures the flows " +
			"move to XDP."},
	{CodeRDMAAuditDiffers, High,
		"With `rdma.audit`: a device has counted another number of packets than XDP, at a moment in which no packet passed.",
		"Set the flow's `backend: xdp`, and report the device and the flow."},
	{CodeRDMARuleStuck, High,
		"A device refused to remove a rule. Packets that match it may not be counted, or may still be dropped or taken.",
		"Restart the instance: the device drops its rules when the process ends."},
	{CodeQueuePairError, High,
		"A queue pair is in state ERR. The text has its first completion in error. Outstanding operations have ended in " +
			"error and are counted as errors.",
		"Check the peer, then `flowtally queue-pairs connect NAME`."},
	{CodeQueuePairLost, High,
		"The device of a queue pair failed or was removed. Its counters do not change.",
		"Check `rdma link` and `dmesg`. When the device is back, the queue pair is made again with another number, which " +
			"its peer must learn, and totals go on."},
	{CodeQueuePairUnconnected, High,
		"Connecting a queue pair failed after its earlier connection had ended. The text has its state and the verb that " +
			"failed. If the configuration names the peer, connecting is tried again when the device returns.",
		"Remove the cause that the text names, then `flowtally queue-pairs connect NAME`, with the address if the " +
			"configuration has none."},

	{CodeQueuePairSource, Medium,
		"The source that counted a queue pair failed. `ibv_poll_cq` counts instead.",
		"Restart the instance. Report the device if it happens again."},
	{CodeWordsSocket, Medium,
		"The socket `NAME.words` has lost its name, and cannot be made again. No program can take reserved words. Programs " +
			"that have words go on.",
		"Remove the cause that the text names: the socket is made again within a second."},
	{CodeWordsAbandoned, Medium,
		"The program that had reserved words ended without giving them back, or was killed. Their counter keeps its last " +
			"value, which is stale.",
		"Start the program again: it takes new words, and the total goes on. Or `flowtally queue-pairs release NAME`."},
	{CodeWordsBackwards, Medium,
		"The program that has reserved words, or its device, has written a smaller number there, or one above their limit. " +
			"The total went on from its last value, with a discontinuity. The condition lasts until the program gives the words back or ends.",
		"Correct the program: only additions to the words make sense. Then start it again."},
	{CodeRDMADeviceLost, Medium,
		"A device failed or was removed. XDP counts its flows where it can.",
		"Check `rdma link` and `dmesg`. When the device is back, its flows return to it by themselves."},
	{CodeXDPGeneric, Medium,
		"The driver has no native XDP, or refused it. Counting is right but slower. On virtual links, merged segments count " +
			"as one packet.",
		"Write `mode: tcx` for the interface, or `native` where the driver has it, and run `flowtally apply`. Or turn segmentation off " +
			"at the sender, which does not end the condition: `ethtool -K PEER tso off gso off`."},
	{CodeXDPBeside, Medium,
		"Another program holds the XDP hook of an interface, and flowtally counts received packets behind it, by TCX ingress, " +
			"or in the libxdp dispatcher that holds it, in front of its other programs (Low). Behind it, " +
			"packets that the other program drops, sends back, redirects or gives to an AF_XDP socket are not counted. Packets " +
			"that it changes are counted as it leaves them.",
		"Free the hook, as the text says. After 30 s counting moves to XDP by itself, with one discontinuity. Or accept the " +
			"difference."},
	{CodeTCXBefore, Medium,
		"Other TCX programs run before flowtally's on the packets that an interface sends, or receives in mode tcx. The text has their ids, and " +
			"their names if the process has CAP_SYS_ADMIN. A packet is not counted, and no flow drops it, if one of them " +
			"returns anything but `TCX_NEXT` (-1); `TCX_PASS` (0) ends the chain too. Low with `xdp.tcx: last`.",
		"Apply `keep_pins: false`, then restart: flowtally then goes before the other programs. Or `bpftool link detach id N`, with " +
			"the number in the fix."},
	{CodeInterfacesStacked, Medium,
		"A packet passes two counted interfaces in one direction: a bridge, bond or team and its port, or a VLAN device, macvlan, " +
			"ipvlan or tunnel and the device below it. Further links may lie between the two. A flow without an `interface` of " +
			"its own counts the packet on each. flowtally does not know stacks over a parent in another network namespace, over " +
			"ports of Open vSwitch, and of tunnels bound to no device.",
		"Write the list of `interfaces` from the fix of the condition, and run `flowtally apply`. The list keeps the lowest " +
			"interface of each stack, which sees the most packets. Or give each flow an `interface` of its own."},
	{CodeVLANOffload, Medium,
		"The device, or the other end of a veth pair, keeps the VLAN tag of a received packet beside the frame, where XDP " +
			"does not see it. A flow with `vlan` counts nothing, and packets are counted 4 bytes short. Raised if a flow " +
			"matches `vlan`, or a VLAN device is on top of the interface.",
		"`ethtool -K DEVICE rx-vlan-offload off`; for a veth first `ethtool -K PEER tx-vlan-offload off`. For a device that cannot: " +
			"write `mode: tcx` for the interface, which sees the tags, and run `flowtally apply`."},
	{CodeIPsecTunnel, Medium,
		"The network namespace has an IPsec policy of tunnel mode for received packets, and TCX or generic XDP counts received " +
			"packets on an interface. The kernel decrypts a packet of the tunnel and hands it to the interface again. TCX and " +
			"generic XDP count it as ESP and as the packet inside. XDP in the driver counts it as ESP alone.",
		"Write `mode: native` for the interface, and run `flowtally apply`. Or match `esp` (behind NAT `udp dport 4500`) in a " +
			"flow before the others: then the others count each packet once, and the condition stays."},
	{CodeXDPMerged, Medium,
		"A tap or tun device was opened with IFF_VNET_HDR. A virtual machine can send buffers of up to 64 KB through it, and " +
			"native XDP counts each buffer as one packet.",
		"Start QEMU with `vnet_hdr=off`, or in the virtual machine `ethtool -K DEVICE tso off gso off`. The second does " +
			"not end the condition, since the host cannot see it."},

	{CodeRDMABudget, Low,
		"Values of a device are older than a second: it has more counters than `rdma.commands_per_second` can read.",
		"Raise the limit and restart, count fewer flows in hardware, or use a device with DevX."},
	{CodeRDMAPortDown, Low,
		"The port of a device is down.",
		"Bring the link up: counting resumes by itself."},
	{CodeMirrorRemade, Low,
		"The file of the mirror was removed, replaced, truncated or overwritten, and was made again. Totals and handles go " +
			"on; the history starts empty. Readers by name follow (`shm.Open`, `ft_follow`). The condition lasts " +
			"ten minutes.",
		"Find the program that changes files in the mirror's directory."},
	{CodeMirrorFull, Low,
		"The last added counter found no room: a limit is reached, or the file system is full.",
		"Free space on the file system, or raise `mirror.counters` or `mirror.latency_counters` and run `flowtally apply`. The next " +
			"flow that finds room ends the condition."},
	{CodePollOverrun, Low,
		"More than an eighth of the last 128 poll cycles took longer than `poll.period`.",
		"Raise the period and run `flowtally apply`, or give the process more CPU."},
	{CodePluginUnconfined, Low,
		"The kernel does not confine the plugin to its files (Landlock): it was built without Landlock, does not enable it, or " +
			"a system call filter refuses `landlock_*`. A plugin that was taken over can read and write every file of its user. It " +
			"has few capabilities, and cannot get one by executing a file, all the same.",
		"Run a kernel with `CONFIG_SECURITY_LANDLOCK=y` and `landlock` in `lsm=`, and allow `landlock_create_ruleset`, " +
			"`landlock_add_rule` and `landlock_restrict_self` in the filter of the container or of the unit."},
}
