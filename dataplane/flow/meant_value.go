package flow

import (
	"fmt"
	"strconv"
	"strings"
)

// foreignValue proposes a translation for a value in the syntax of another tool. next is the word after it, and taken says
// that next is part of the value.
func (f *field) foreignValue(text, next string) (suggestion string, taken bool) {
	operator, operand := cutOperator(text)
	if operator != "" && operand == "" && next != "" {
		operand, taken = next, true
	}
	isSet := f.hasChoices() && strings.ContainsAny(operand, "{,")
	isRight := f.accepts(operand) || f.takesNamedSets() && isNamedSet(operand)
	switch {
	case operator == "!=" && f.hasChoices() && isRight:
		return meant(f.name + " != " + operand), taken
	case operator == "!=" && isSet:
		return "write the operator as !=, as in " + f.name + " != {a, b}", taken
	case operator == "!=":
		return excludesNothing, taken
	case operator == "=" && isRight:
		return meant(f.name + " " + operand), taken
	case operator == "=" && isSet:
		return "leave the operator out, as in " + f.name + " {a, b}", taken
	case operator != "":
		return f.compared(operator, operand), taken
	case strings.HasPrefix(text, "{"):
		return hasOneWord, false
	case strings.HasPrefix(text, "(") || strings.HasSuffix(text, ")"):
		return hasNoBrackets, false
	}
	if list := strings.Split(text, ","); len(list) > 1 && f.accepts(list[0]) {
		return fmt.Sprintf("%s: %q, %q", hasOneWord, f.name+" "+clip(list[0]), f.name+" "+clip(list[1])), false
	}
	return f.named(text), false
}

// accepts reports whether the text is a value of the field.
func (f *field) accepts(text string) bool { return f.parse(f.ref(newFull(), 0), text) == nil }

// compared proposes the range for a comparison such as "> 1023".
func (f *field) compared(operator, operand string) string {
	n, err := strconv.ParseUint(operand, 10, 32)
	if !f.hasRanges() || f.isAddress() || err != nil {
		return comparesNoSizes
	}
	lo, hi := uint64(0), uint64(ones(f.bits))
	switch operator {
	case ">":
		lo = n + 1
	case ">=":
		lo = n
	case "<":
		hi = n - 1
	case "<=":
		hi = n
	}
	if lo > hi || hi > uint64(ones(f.bits)) {
		return comparesNoSizes
	}
	return meant(fmt.Sprintf("%s %d-%d", f.name, lo, hi))
}

// named proposes the name of a value, or first-last for a range in another notation.
func (f *field) named(text string) string {
	lower := strings.ToLower(text)
	switch f.ref(full, 0).(type) {
	case *Port:
		for _, sep := range []string{":", "..", "-"} {
			first, last, ok := strings.Cut(text, sep)
			if first == "" {
				first = "0"
			}
			if last == "" {
				last = "65535"
			}
			if ok && f.accepts(first+"-"+last) {
				return meant(first + "-" + last)
			}
		}
	case *Addr4, *Addr6:
		first, last, ok := strings.Cut(text, "-")
		if cut := strings.LastIndexAny(first, ".:"); ok && cut >= 0 && f.isRange(first+"-"+first[:cut+1]+last) {
			return meant(first + "-" + first[:cut+1] + last)
		}
	}
	if _, ok := f.names()[lower]; ok {
		return meant(lower)
	}
	if _, ok := etherTypes[lower]; ok && (f.name == "proto" || f.name == "nexthdr") {
		return meant("eth type " + lower)
	}
	return didYouMean(text, f.nameList())
}
