package rules

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// places is the script that carries out what doctor prints about the host.
const places = "cmd/internal/cli/testdata/place/place.txtar"

// Reasons of several fixes.
const (
	olderKernel    = "needs an older kernel, or one that was built otherwise"
	realNIC        = "needs such a NIC; the software device stands for its verbs, not for its driver"
	anotherRelease = "needs another release of a library of the system; make test-releases has three"
)

// carriedOut has, for each fix of a condition or of a probe that a test carries out, the test: a function of a package,
// which takes the step out of the printed fix with lab.Step and does what it says, or a file with a text in it.
// The keys are those of fixTexts, behind their package.
var carriedOut = map[string]string{
	"cmd/internal/cli: flowtally clean --instance …": `cmd/internal/cli/clean_linux_test.go: must(exitOK, "flowtally clean --instance "+in.name, "doctor", in.wire.Near.Name)`,

	"cmd/internal/hostcheck: another --mirror PATH":                                                                                 places + ": answers no 'mirror writable' 'another --mirror PATH'",
	"cmd/internal/hostcheck: another --mirror PATH, in a directory of your own below /run or /dev/shm":                              places + ": another --mirror PATH, in a directory of your own below /run or /dev/shm",
	"cmd/internal/hostcheck: chmod 0755 …":                                                                                          places + ": answers no 'mirror writable' 'chmod 0755 .*own'",
	"cmd/internal/hostcheck: …, or another --mirror PATH":                                                                           places + ": answers no 'mirror writable' 'chmod go-w .*own'",
	"cmd/internal/hostcheck: install flowtally-plugin beside flowtally, or --plugin PATH":                                           places + ": 'install flowtally-plugin beside flowtally, or --plugin PATH'",
	"cmd/internal/hostcheck: mkdir -p /run/flowtally && mount -t tmpfs -o mode=0755 tmpfs /run/flowtally, or another --mirror PATH": places + `: flowtally doctor | grep "try: $command"`,
	"cmd/internal/hostcheck: mount -o remount,size=…M …, or remove files there":                                                     places + ": 'try: mount -o remount,size=1025M /run,'",
	"cmd/internal/hostcheck: run as root":                                                                                           places + ": answers no 'mirror writable' 'run as root'",
	"cmd/internal/hostcheck: run as root, or AmbientCapabilities=… in the systemd unit":                                             places + ": 'run as root, or AmbientCapabilities=CAP_BPF in the systemd unit'",
	"cmd/internal/hostcheck: run as root, or set mirror.words_mode and mirror.words_group, and join that group":                     places + ": 'run as root, or set mirror.words_mode and mirror.words_group, and join that group'",
	"cmd/internal/hostcheck: run as user …, or another --mirror PATH":                                                               places + ": 'run as user 1234, or another --mirror PATH'",

	"dataplane/engine/catalogue: make room on its file system, or raise mirror.counters or mirror.latency_counters, then: flowtally apply; the next flow that finds room ends the condition": "dataplane/engine.TestFixOfAFullMirrorEndsTheCondition",
	"dataplane/engine/catalogue: remove the cause; the mirror is made anew within a second":                                                                                                  "dataplane/engine.TestAMirrorThatCannotBeMadeAnewIsACondition",

	"dataplane/engine/poll: raise poll.period, then: flowtally apply; or give the process more CPU":  "dataplane/engine.TestFixOfLatePollCyclesEndsTheCondition",
	"dataplane/engine/poll: restart the instance: totals go on; report the text if it happens again": "dataplane/engine.TestFixOfASourceThatCannotBeReadLetsTheTotalGoOn",

	"dataplane/engine/queuepair: install rdma-core 65 where the device is an EFA; the next best source counts the same completions":                      "internal/lab/rdmacore/hour_linux_test.go: func TestKernelFirstHourOfAnEFA(",
	"dataplane/engine/queuepair: post send, or install a newer rdma-core where the device has it":                                                        "internal/lab/rdmacore/hour_linux_test.go: func TestKernelFirstHourOfAnEFA(",
	"dataplane/engine/queuepair: set `type: …` of the queue pair in the configuration":                                                                   "internal/lab/rdmacore/hour_linux_test.go: func TestKernelFirstHourOfAnEFA(",
	"dataplane/engine/queuepair: use the next best source, which counts the same completions":                                                            "internal/lab/rdmacore/hour_linux_test.go: func TestKernelFirstHourOfAnEFA(",
	"dataplane/engine/queuepair: look after the peer, then connect it anew: flowtally queue-pairs connect …":                                             "dataplane/engine.TestEverySourceCountsTheSame",
	"dataplane/engine/queuepair: remove the cause that the text names, then: flowtally queue-pairs connect … [ADDRESS]":                                  "dataplane/engine.TestAConnectionThatFailsHalfWayIsACondition",
	"dataplane/engine/queuepair: restart the instance; report the device if it happens again":                                                            "dataplane/engine.TestASourceThatFailsIsReplaced",
	"dataplane/engine/queuepair: see dmesg and `rdma link`; when the device is back the queue pair is made again, with another number, and totals go on": "dataplane/engine.TestAQueuePairOutlivesItsDevice",
	"dataplane/engine/queuepair: set `type` of the queue pair to rc, or use source cq_ring or auto":                                                      "dataplane/engine/queuepair_device_linux_test.go: fix: \"set `type` of the queue pair to rc, or use source cq_ring or auto\"",
	"dataplane/engine/queuepair: use a device that has completion counters of it (EFA, rdma-core 65), or count it at the peer":                           "dataplane/engine/queuepair_device_linux_test.go: func TestRemoteOperationsAreCountedByTheDeviceAlone(",
	"dataplane/engine/queuepair: use source cq_ring, which reads the entries of an mlx5 completion queue where the device wrote them, or auto":           `dataplane/engine/queuepair_device_linux_test.go: fix: "source cq_ring"`,

	"dataplane/engine/rdma: bring the link up: ip link set … up; counting on it goes on by itself":                                                                                      "dataplane/engine/rdma.TestAPortThatIsDownLosesItsFlowsUntilItIsUp",
	`dataplane/engine/rdma: leave "inner any" out`:                                                                                                                                      "dataplane/engine/rdma.TestARefusedMatchFitsAfterItsFix",
	`dataplane/engine/rdma: leave "inner" out, or ask for a field of it`:                                                                                                                "dataplane/engine/rdma.TestARefusedMatchFitsAfterItsFix",
	"dataplane/engine/rdma: split the flow, or use aligned port ranges":                                                                                                                 "dataplane/engine/rdma.TestARefusedMatchFitsAfterItsFix",
	"dataplane/engine/rdma: count by XDP (backend: xdp), or test the device, so that we can allow it: flowtally selftest --interface … --rdma-device …":                                 "internal/lab/rdmacore/switchdev_linux_test.go: func TestKernelSwitchdevIsDecidedBySelftest(",
	"dataplane/engine/rdma: let the flows not overlap, or use a device with DevX":                                                                                                       "dataplane/engine/rdma.TestFitsRefusesFlowsThatWouldCountTwice",
	"dataplane/engine/rdma: make the flows overlap less, or leave one of them to backend xdp":                                                                                           "dataplane/engine/rdma.TestAFlowWithoutAFreeLevelIsRefused",
	"dataplane/engine/rdma: name the slaves of … in its place under interfaces":                                                                                                         `dataplane/engine/rdma/placement_test.go: "bond0": "name the slaves of bond0"`,
	"dataplane/engine/rdma: name … in the place of its slaves under interfaces":                                                                                                         `dataplane/engine/rdma/placement_test.go: "eth2": "name bond1"`,
	"dataplane/engine/rdma: raise rdma.commands_per_second and restart, count fewer flows in hardware, or use DevX with rdma-core 63 or later, which reads 128 counters by one command": "dataplane/engine/rdma.TestSamplesThatAreTooOldAreACondition",
	"dataplane/engine/rdma: restart the instance, because rules end with the process; counting on the device goes on by itself if the rule can be taken out":                            "dataplane/engine/rdma.TestAStuckRuleKeepsFlowsOffTheDeviceUntilItIsOut",
	"dataplane/engine/rdma: see dmesg and `rdma link`; when the device is back, counting on it goes on by itself":                                                                       "dataplane/engine/rdma.TestALostDeviceIsOpenedAgainWhenItIsBack",
	"dataplane/engine/rdma: see dmesg for firmware errors; reading is tried again, more and more rarely":                                                                                "dataplane/engine/rdma.TestReadErrorsEndByThemselves",

	"dataplane/engine/trial: install another release of rdma-core, or of the device's own libraries, and start the instance again": "dataplane/engine.TestALibraryThatCrashesCostsItsDevice",

	"dataplane/engine/words: correct the program, which may only add to the words, and start it again":       "dataplane/engine/words.TestWordsThatGoBackwardsRaiseACondition",
	"dataplane/engine/words: remove the cause that the text names: the socket is made again within a second": "dataplane/engine/words.TestSocketWithoutItsNameRaisesACondition",
	"dataplane/engine/words: start the program again, or: flowtally queue-pairs release …":                   "dataplane/engine/words.TestAbandonedWordsRaiseACondition",

	"dataplane/engine/xdp: ; or detach the other program: …":                                                                                                              "dataplane/engine.TestFixesOfATCXNeighbourEndTheCondition",
	"dataplane/engine/xdp: apply xdp.keep_pins: false, then restart flowtally: it goes before the programs that are there":                                                "dataplane/engine.TestFixesOfATCXNeighbourEndTheCondition",
	"dataplane/engine/xdp: nothing, if these programs are meant to decide first; else set xdp.tcx to first, and apply xdp.keep_pins: false, then restart flowtally":       "dataplane/engine.TestFixesOfATCXNeighbourEndTheCondition",
	"dataplane/engine/xdp: bring the interface back; counting on it goes on by itself":                                                                                    "dataplane/engine.TestSetInterfacesRefusesAListThatDoesNotExist",
	"dataplane/engine/xdp: make an interface that matches it; counting on it begins by itself. If the host may lack one, give the entry optional: true":                   "dataplane/engine.TestOptionalInterfacesAreTakenWhenTheyCome",
	"dataplane/engine/xdp: remove the cause; counting on the interface goes on by itself":                                                                                 "dataplane/engine.TestADegradedStartCountsOnTheOtherInterfaces",
	"dataplane/engine/xdp: …; after a change of the configuration: flowtally apply":                                                                                       "dataplane/engine.TestFixOfAnInterfaceWithoutNativeModeNamesOneThatCounts",
	"dataplane/engine/xdp: ethtool -K PEER tx-vlan-offload off, for the other end of this veth pair, which leaves the tag in the frame; then …":                           "dataplane/engine.TestTagsThatTheDeviceTakesAreAConditionUntilItsFix",
	"dataplane/engine/xdp: ethtool -K … rx-vlan-offload off":                                                                                                              "dataplane/engine.TestTagsThatTheDeviceTakesAreAConditionUntilItsFix",
	"dataplane/engine/xdp: mode: tcx for …, which sees the tags that this device cannot leave in the frame, then: flowtally apply":                                        "dataplane/engine/fixes_linux_test.go: func TestTCXIsTheFixOfADeviceThatKeepsTags(",
	"dataplane/engine/xdp: mode: tcx for …, or native where its driver has it, then: flowtally apply":                                                                     "dataplane/engine.TestFixOfGenericModeEndsBothConditions",
	"dataplane/engine/xdp: open the device without IFF_VNET_HDR (QEMU: vnet_hdr=off), or turn segmentation off in the virtual machine: ethtool -K DEVICE tso off gso off": "dataplane/engine.TestMergedSegmentsOfATapAreACondition",
	"dataplane/engine/xdp: make the directory usable again, after an unmount by mounting its bpffs again: the instance pins again by itself":                              "dataplane/engine.TestLostPinsAreAConditionAndMadeAgain",
	"dataplane/engine/xdp: make the directory usable again, after an unmount with mount -t bpf -o mode=0700 bpf /sys/fs/bpf: the instance pins again by itself":           "dataplane/engine.TestFixOfPinsAtTheKernelsPlacePinsAgain",
	"dataplane/engine/xdp: …; counting moves to XDP by itself when the hook has been free for 30 s. If counting behind it is intended, no step is needed":                 "dataplane/engine.TestAnInstanceTakesTheHookBack",
	"dataplane/engine/xdp: interfaces: […] in the configuration, because XDP in the driver sees the encrypted packets alone, then: flowtally apply -f FILE; or match esp (behind NAT: udp dport 4500) in a flow before the others: it counts the encrypted packets, and the others count each packet once": "cmd/internal/cli/testdata/script/ipsec.txtar: # The fix of the condition ends it.",
	"dataplane/engine/xdp: match esp (behind NAT: udp dport 4500) in a flow before the others: it counts the encrypted packets, and the others count each packet once":                                                                                                                                     "dataplane/engine/stacked_vm_test.go: func TestIPsecCountsTwice(",
	"dataplane/engine/xdp: interfaces: […] in the configuration, then: flowtally apply -f FILE; or give each flow an interface of its own (interface: NAME)":                                                                                                                                               `dataplane/engine/stacked_vm_test.go: check("after the fix", 3*n)`,
	"dataplane/engine/xdp: interfaces: […] in the configuration, without …, then: flowtally apply -f FILE; or give each flow an interface of its own (interface: NAME)":                                                                                                                                    "cmd/internal/cli/testdata/script/stacked.txtar: # The fix of the condition ends it, and each packet is counted once.",
	"dataplane/engine/xdp: give each flow an interface of its own (interface: NAME): flows ask for both interfaces by name, so both must stay":                                                                                                                                                             "cmd/internal/cli/testdata/script/stacked.txtar: # An interface for each flow ends it as well",

	"dataplane/engine: remove the cause that the text names: the flow is tried again when interfaces, devices or other flows change; or remove the flow from the configuration, then: flowtally apply": "dataplane/engine.TestADegradedStartGoesOnWithoutRefusedFlows",
	"dataplane/engine: run a kernel with Landlock (CONFIG_SECURITY_LANDLOCK=y, and landlock in lsm=), and allow landlock_* in the system calls of the container or the unit":                           "cmd/flowtally-plugin.TestUnconfinedPluginSaysSo",
	"dataplane/engine: see `rdma dev`, and correct queue_pairs in the configuration":                                                                                                                   "dataplane/engine.TestProbeNamesTheSourcesOfCompletionsBestFirst",
	"dataplane/engine: set the flow's backend to xdp, and report the device and the flow":                                                                                                              "dataplane/engine.TestAuditMakesUpForAReturnUnderTraffic",

	"ibv: set rdma.mlx5 to the … of the release that … is of: the system's own fits the system's libibverbs alone": "ibv.TestFixBesideAnotherLibibverbsIsTheMissingOption",

	"plugin: chmod 0755 …": "plugin/trust_linux_test.go: func TestNextStepMakesThePluginUsable(",
	"plugin: it is started again by itself; the log above has its last lines": "plugin.TestKilledPluginComesBackWithItsFlows",

	"xdp: count on the device that carries its traffic, or count egress only":                                                                             `xdp/layer3_linux_test.go: {device{link: "sit", kind: "sit"}, "no", "ip"}`,
	"xdp: mount -t bpf -o mode=0700 bpf /sys/fs/bpf":                                                                                                      "dataplane/engine.TestFixOfPinsAtTheKernelsPlacePinsAgain",
	"xdp: name one that is there":                                                                                                                         "cmd/internal/cli.TestDoctorAnswersAsAttachingDoes",
	"xdp: run as root, or with CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN":                                                                                    places + ": 'run as root, or with CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN'",
	"xdp: stop its owner; or: bpftool link detach id …":                                                                                                   "cmd/internal/cli.TestDoctorAnswersAsAttachingDoes",
	"xdp: stop its owner; or: ip link set dev … xdp off":                                                                                                  "cmd/internal/cli.TestDoctorAnswersAsAttachingDoes",
	"xdp: stop that instance; or, where it does not run any more: flowtally clean --pin-dir …":                                                            "cmd/internal/cli.freeHook",
	"xdp: use mode auto, which counts by TCX or generic XDP, or a driver with XDP":                                                                        "dataplane/engine.TestFixOfAnInterfaceWithoutNativeModeNamesOneThatCounts",
	"xdp: use mode auto, which counts by TCX or generic XDP, or another device":                                                                           "dataplane/engine.TestFixOfAnInterfaceWithoutNativeModeNamesOneThatCounts",
	"xdp: use mode native or tcx for the interface, or a kernel without SCTP (modprobe -r sctp; echo install sctp /bin/false >/etc/modprobe.d/sctp.conf)": "xdp.TestGenericModeIsRefusedWhereItWouldCrashTheKernel",
}

// notCarriedOut has the fixes that no test carries out, and the reason.
var notCarriedOut = map[string]string{
	"cmd/internal/cli: flowtally clean --instance … # or start it: it exchanges them":      "needs programs of another build on a hook; TestAFailedStartLeavesNoProgramOfAnotherBuild (xdp) has them",
	"cmd/internal/cli: restart it (systemctl restart flowtally): its start exchanges them": "the same",

	"cmd/internal/hostcheck: a kernel from 6.1 on":                             olderKernel,
	"cmd/internal/hostcheck: correct the named path, or another --mirror PATH": "for a fault without a command: a link on the way to the mirror, or an access list; a person decides which is wrong",

	"dataplane/engine/catalogue: find the process that changes files in …": "a person looks; the condition lasts ten minutes",

	"dataplane/engine/rdma: give the program CAP_NET_ADMIN, and compare: devlink dev eswitch show …/…":                realNIC,
	"dataplane/engine/rdma: leave the flow to XDP, or set rdma.steal to true if the kernel does not need the packets": realNIC,
	"dataplane/engine/rdma: leave the flow to backend auto or xdp":                                                    "XDP counts each match; TestHardwareTakesExactlyTheMatchesOfTheTable has the refusals",
	"dataplane/engine/rdma: see `rdma link`, and load the driver of the NIC (mlx5_ib for ConnectX)":                   realNIC,
	"dataplane/engine/rdma: see ip link": "a person looks",
	"dataplane/engine/rdma: use a ConnectX device with libmlx5 and CAP_NET_RAW, or count by verbs or in XDP": realNIC,
	"dataplane/engine/rdma: use a NIC whose driver has flow counters (mlx5), or count in XDP":                realNIC,

	"dataplane/engine/xdp: do what the condition of … says, which ends this one too":                                                                                               "that condition has the fix; TestStackedTextGrowsWithTheInterfaces has both texts",
	"dataplane/engine/xdp: interfaces: […] in the configuration, without … and … more, then: flowtally apply -f FILE; or give each flow an interface of its own (interface: NAME)": "stacked.txtar carries out the same list; these are more than eight interfaces",
	"dataplane/engine/xdp: load these programs with a priority above 0: xdp-loader status lists the components":                                                                    "needs xdp-loader, which the virtual machines have; TestInstanceInADispatcherCountsEachPacketOnce counts there in front of the programs that it loads",
	"dataplane/engine/xdp: no step is needed; xdp-loader status lists the components":                                                                                              "it asks for nothing",
	"dataplane/engine/xdp: use a driver with native XDP, or turn off TSO and GSO of the sender (the condition stays): ethtool -K PEER tso off gso off":                             olderKernel,

	"dataplane/engine: see `rdma link`; for a ConnectX NIC, load mlx5_ib": realNIC,

	"ibv: count sent packets in XDP (TCX)":                                                                            realNIC,
	"ibv: give the process CAP_NET_RAW in the RDMA device's network namespace":                                        realNIC,
	"ibv: install ibverbs-providers (Debian, Ubuntu) or libibverbs (Fedora, RHEL)":                                    anotherRelease,
	"ibv: install libefa of rdma-core 27 or later (ibverbs-providers, or libibverbs), or of Amazon's driver":          anotherRelease,
	"ibv: install libefa of rdma-core 65 or later (ibverbs-providers, or libibverbs), or of Amazon's driver":          anotherRelease,
	"ibv: install libibverbs1 (Debian, Ubuntu, SUSE) or libibverbs (Fedora, RHEL)":                                    anotherRelease,
	"ibv: mlxconfig -d DEVICE set UCTX_EN=1, and reset the firmware":                                                  realNIC,
	"ibv: modprobe ib_uverbs, and the driver of the RDMA device":                                                      olderKernel,
	"ibv: name an EFA device, or use a queue pair of type RC or UD":                                                   realNIC,
	"ibv: name the … of rdma-core, or none, for the system's":                                                         anotherRelease,
	"ibv: needs rdma-core 65 and a device that has them, such as EFA's; completions can be counted from a CQ instead": realNIC,
	"ibv: read them before they do, and add up":                                                                       "the caller of package ibv does so; engine/queuepair takes another source",
	"ibv: set rdma.efa to the … of the release that … is of: the system's own fits the system's libibverbs alone":     "TestFixBesideAnotherLibibverbsIsTheMissingOption carries out the same for libmlx5",
	"ibv: use DevX where libmlx5 offers it, or XDP; `steal: true` takes the packets away from the kernel":             realNIC,
	"ibv: use a NORMAL flow, with DONT_TRAP where the packets must go on":                                             "for a caller of package ibv; the engine makes such flows",
	"ibv: use a device whose driver has flow counters (mlx5), or count in XDP":                                        realNIC,
	"ibv: use a device whose driver has flow steering (mlx5), or count in XDP":                                        realNIC,
	"ibv: use a device with RAW_PACKET queue pairs (mlx5, mlx4, on a port with an Ethernet link)":                     realNIC,
	"ibv: use libibverbs and libefa of one release, rdma-core 65 or later":                                            anotherRelease,

	"plugin: use flowtally and flowtally-plugin of one release": "needs a plugin of another release",

	"xdp: count on another interface": "TestLayer3FollowsTheTypeOfTheDevice has the devices that are refused; others count",
	"xdp: stop its owner":             "only the simulated kernel (internal/lab/memkernel) has such a holder",
	"xdp: stop its owner; or: ip link set dev … xdp off; or, where it has a link: bpftool link list, bpftool link detach id N": "for a process without CAP_SYS_ADMIN; TestDoctorAnswersAsAttachingDoes carries out both commands",
	"xdp: use a kernel of 6.1 or later": olderKernel,
	"xdp: use a kernel of 6.6 or later with BTF (CONFIG_DEBUG_INFO_BTF), or free the XDP hook": olderKernel,
	"xdp: use a kernel of 6.6 or later, or count by XDP":                                       olderKernel,
	"xdp: use a kernel of 6.6 or later, or count ingress only":                                 olderKernel,
}

// fixPackages make the conditions of an instance and the answers of doctor.
func fixPackages(t *testing.T) map[string]pkg {
	t.Helper()
	all := maps.Clone(packages(t))
	maps.DeleteFunc(all, func(name string, _ pkg) bool {
		engine := name == "dataplane/engine" || strings.HasPrefix(name, "dataplane/engine/")
		return !engine && !slices.Contains([]string{"plugin", "xdp", "ibv", "cmd/internal/hostcheck", "cmd/internal/cli"}, name)
	})
	command := all["cmd/internal/cli"]
	command.GoFiles = []string{"leftovers.go"} // the answers of doctor about instances; TestNextStepsCure has the other steps
	all["cmd/internal/cli"] = command
	return all
}

// TestFixesAreCarriedOut: each fix of a condition, and of an answer of doctor, is carried out by a test as it is printed,
// or there is a reason why none does. cmd/internal/cli has the same for the next steps of commands (TestNextStepsCure).
func TestFixesAreCarriedOut(t *testing.T) {
	fixes := make(map[string]bool)
	for name, p := range fixPackages(t) {
		for _, text := range fixTexts(t, p) {
			fixes[name+": "+text] = true
		}
	}
	for _, key := range slices.Sorted(maps.Keys(fixes)) {
		where, carried := carriedOut[key]
		_, excused := notCarriedOut[key]
		switch {
		case carried && excused:
			t.Errorf("%q is in both lists", key)
		case !carried && !excused:
			t.Errorf("no test carries out %q, and no reason says why", key)
		case carried:
			if why := carries(t, where, key); why != "" {
				t.Errorf("%q: %s: %s", key, where, why)
			}
		}
	}
	for key := range maps.Keys(carriedOut) {
		if !fixes[key] {
			t.Errorf("nothing prints %q", key)
		}
	}
	for key := range maps.Keys(notCarriedOut) {
		if !fixes[key] {
			t.Errorf("nothing prints %q", key)
		}
	}
	t.Logf("%d fixes are carried out, %d have a reason why not", len(carriedOut), len(notCarriedOut))
	if len(fixes) < 80 {
		t.Errorf("only %d fixes were found", len(fixes))
	}
}

// carries returns why a place does not carry out a fix, or "".
func carries(t *testing.T, where, fix string) string {
	t.Helper()
	root := filepath.Join("..", "..")
	if file, text, ok := strings.Cut(where, ": "); ok {
		data, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(file)))
		if err != nil {
			return err.Error()
		}
		if !strings.Contains(string(data), text) {
			return "the file does not have the text"
		}
		return ""
	}

	dot := strings.LastIndex(where, ".")
	files, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(where[:dot]), "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Name.Name == where[dot+1:] {
				if !slices.ContainsFunc(stepsIn(f), func(step string) bool { return strings.Contains(fix, step) }) {
					return "the test takes no such step"
				}
				return ""
			}
		}
	}
	return "there is no such test"
}

// stepsIn returns the patterns of the steps that a test takes out of fixes, with … for what is no literal.
func stepsIn(f *ast.FuncDecl) (steps []string) {
	s := fixSource{values: make(map[string]bool)}
	ast.Inspect(f, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok && calledName(call) == "Step" && len(call.Args) >= 3 {
			steps = append(steps, s.texts(call.Args[2], nil)...)
		}
		return true
	})
	return steps
}
