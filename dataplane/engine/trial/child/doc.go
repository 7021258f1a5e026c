// Package child is the process of a trial, and of a probe: it calls the verbs that may crash or hang. A trial makes one of
// each object that an instance uses on a device ([Main]). A probe finds out the features of a device ([Probe]): it calls
// more verbs than a trial, so that its crash leaves a feature unknown and does not cost the device.
package child
