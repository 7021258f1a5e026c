// Package child is the process in which verbs may crash or hang. [Main] runs a trial, which makes one of each object that
// an instance uses on a device. [Probe] finds out the features of a device. A probe calls more verbs than a trial, so its
// crash must not exclude the device: the feature just stays unknown.
package child
