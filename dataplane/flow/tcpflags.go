package flow

import (
	"fmt"
	"slices"
	"strings"
)

// wordNone is the value of TCP flags that are all clear.
const wordNone = "none"

// flagWords are the names of TCP flags, the lowest bit first.
var flagWords = [...]string{"fin", "syn", "rst", "psh", "ack", "urg", "ece", "cwr", "ae"}

// plainFlags are the flags that a value without a mask compares. It also compares the other bits that it sets.
const plainFlags TCPFlags = 0xff

// String returns the names of the flags, "syn,ack", or "none"; a number where a reserved bit is set.
func (f TCPFlags) String() string {
	if f>>len(flagWords) != 0 {
		return fmt.Sprintf("0x%03x", uint16(f))
	}
	var names []string
	for i, name := range flagWords {
		if f>>i&1 != 0 {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return wordNone
	}
	return strings.Join(names, ",")
}

// parseFlags reads flags, or flags/mask.
func (f *field) parseFlags(p *Masked[TCPFlags], text string) error {
	first, second, masked := strings.Cut(text, "/")
	value, err := f.parseFlagNames(first)
	if err != nil {
		return err
	}
	mask := plainFlags | value
	if masked {
		if mask, err = f.parseFlagNames(second); err != nil {
			return err
		}
	}
	*p = Masked[TCPFlags]{Value: value, Mask: mask}
	return nil
}

// parseFlagNames reads names that "," or nft's "|" separates, "none", or a number.
func (f *field) parseFlagNames(text string) (flags TCPFlags, err error) {
	if text == wordNone {
		return 0, nil
	}
	if text != "" && '0' <= text[0] && text[0] <= '9' {
		v, err := f.parseDigits(text)
		return TCPFlags(v), err
	}
	for name := range strings.SplitSeq(strings.ReplaceAll(text, "|", ","), ",") {
		i := slices.Index(flagWords[:], name)
		if i < 0 {
			fix := didYouMean(name, flagWords[:])
			if operator, _ := cutOperator(name); operator == "!=" {
				fix = "a flag in the mask alone must be clear, as ack in syn/syn,ack"
			}
			return 0, &valueError{quoted(name) + " is no TCP flag", fix}
		}
		flags |= 1 << i
	}
	return flags, nil
}

// checkFlags finds flags outside their mask, as of a mask that is written before the flags.
func (f *field) checkFlags(p Masked[TCPFlags]) (cause, fix string) {
	if uint32(p.Mask)&^ones(f.bits) != 0 {
		return f.checkNumber(uint32(p.Value), uint32(p.Mask))
	}
	if p.Value&^p.Mask == 0 {
		return "", ""
	}
	if p.Mask != 0 && p.Mask&^p.Value == 0 {
		p.Value, p.Mask = p.Mask, p.Value
	} else {
		p.Value &= p.Mask
	}
	return "the value has flags outside its mask", didYouMeanValue(f.format(&p))
}
