package setfile

import (
	"fmt"
	"slices"
	"strings"
)

// ipset is what the commands so far have said.
type ipset struct {
	names    []string // of the sets of this file
	families []string // of those that it creates
}

const ipsetFix = "keep the lines as ipset save prints them"

// command reads a line of "ipset save" behind its first word.
func (r *reader) command(creates bool) {
	if len(r.file.Mistakes) == 0 { // else an earlier line is of something else
		r.file.Known = true
	}
	name := r.next()
	switch {
	case name.kind != kindWord:
		r.bad(name, "a command of ipset has no name of a set", ipsetFix)
		r.giveBack(name)
		r.skipLine()
	case creates:
		r.create(name)
	default:
		r.add(name)
	}
}

// create reads the rest of a line that makes a set.
func (r *reader) create(name token) {
	r.ipset.names = append(r.ipset.names, string(name.text))
	at := token{line: name.line, col: name.col} // the next token overwrites its text
	if typ := r.value("create"); typ != "hash:ip" && typ != "hash:net" && typ != "bitmap:ip" {
		r.bad(at, fmt.Sprintf("a set of type %s has more than addresses", quoted(typ)), "keep a set of hash:ip or hash:net")
	}
	family := "inet"
	for {
		t := r.next()
		if t.kind == kindNewline || t.kind == kindEnd {
			break
		}
		switch option := string(t.text); option {
		case "family":
			family = r.value(option)
		case "hashsize", "maxelem", "bucketsize", "initval", "timeout", "range":
			r.value(option)
		case "counters", "comment", "skbinfo", "forceadd", "-exist":
		case "netmask", "bitmask":
			r.bad(t, "the elements have a mask that their lines do not show", "make a set of hash:net of it")
			r.value(option)
		default:
			r.bad(t, fmt.Sprintf("%s is no option of a set", quoted(option)), ipsetFix)
		}
	}
	switch {
	case family != "inet" && family != "inet6":
		r.bad(at, quoted(family)+" is no family of addresses", "it is inet or inet6")
	case slices.Contains(r.ipset.families, family):
		r.bad(at, "the file has two sets of one family", "make a file of each")
	default:
		r.ipset.families = append(r.ipset.families, family)
	}
}

// add reads the rest of a line that adds an element.
func (r *reader) add(name token) {
	known := r.ipset.names
	switch set := string(name.text); {
	case len(known) == 0:
		r.ipset.names = append(known, set)
	case !slices.Contains(known, set):
		r.bad(name, fmt.Sprintf("%s is another set than %s", quoted(set), quoted(strings.Join(known, ", "))), "make a file of each")
	}

	t := r.next()
	if t.kind != kindWord {
		r.bad(t, "a command of ipset has no element", ipsetFix)
		r.giveBack(t)
		r.skipLine()
		return
	}
	r.element(t, ipsetFix)
	for {
		t := r.next()
		if t.kind == kindNewline || t.kind == kindEnd {
			return
		}
		switch option := string(t.text); option {
		case "timeout":
			if r.value(option) != "0" {
				r.file.Timed++
			}
		case "packets", "bytes", "comment", "skbmark", "skbprio", "skbqueue": // they do not say which packets are in the set
			r.value(option)
		case "-exist":
		case "nomatch":
			r.bad(t, "the element is an exception, which a set does not have here", "leave it out, and write the prefixes around it")
		default:
			r.bad(t, fmt.Sprintf("%s stands behind an element", quoted(option)), ipsetFix)
			r.skipLine()
			return
		}
	}
}
