// Package trial decides which RDMA devices an instance may use.
//
// libibverbs and the libraries that it loads run in the instance's process, and a crash of theirs ends it. So a
// [Guard] starts a process for each device before its first use, once per use and start. The process makes one of
// each object that the instance will use, within [Bound]. Before each verb it writes the verb's name to a page that it
// shares with the instance (package verbpage).
//
// A device whose trial crashes or hangs is not used: the verb is the reason, and its flows are counted by other
// backends. Results are not stored. A device that passes its trial and crashes later is the concern of the supervisor
// in package plugin, which names it in hosted.Host.Excluded at the next start.
//
// The package is below the packages that open devices, rdma and queuepair, because both ask the guard first. The
// process of a trial calls functions of both, so its main function is above them: engine.TrialMain.
package trial
