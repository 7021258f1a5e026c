package flow

import (
	"fmt"
	"slices"
	"strings"
)

// wordNone is the word for no TCP flag at all.
const wordNone = "none"

// flagWords has the names of the TCP flags, from the lowest bit.
var flagWords = [...]string{"fin", "syn", "rst", "psh", "ack", "urg", "ece", "cwr", "ae"}

// plainFlags is the default mask, in addition to the flags of the value. It leaves out AE and the reserved bits, so that
// "flags syn" matches whatever they are.
const plainFlags TCPFlags = 0xff

// String returns the names of the flags, such as "syn,ack" or "none". With a reserved bit set it returns a number.
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

// parseFlags parses flags or flags/mask.
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

// parseFlagNames parses names separated by "," or by nft's "|", the word "none", or a number.
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

// checkFlags reports flags outside their mask. Its suggestion considers that the user may have swapped the two.
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
