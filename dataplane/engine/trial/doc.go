// Package trial decides which RDMA devices an instance may use.
//
// libibverbs and its provider libraries run in the instance's process, so a crash in one of them ends the instance.
// Therefore a [Guard] tries each device in a process of its own, once per kind of use and start of the instance. The
// process makes one of each object that the instance will use, each verb within [Bound]. Before each verb it writes the
// verb's name to a page shared with the instance (package verbpage).
//
// If a trial crashes or hangs, the instance does not use the device, and gives the verb as the reason. Other backends
// count its flows. Results last as long as the instance. A device may also pass its trial and crash later: then the
// supervisor in package plugin names it in hosted.Host.Excluded at the next start.
//
// Packages rdma and queuepair open devices and ask the guard first, so this package is below them. The process of a
// trial calls both, so its main function is above them: engine.TrialMain.
package trial
