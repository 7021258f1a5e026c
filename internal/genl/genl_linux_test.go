package genl

import (
	"bytes"
	"errors"
	"testing"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Every kernel has the controller. Asked by its name, it replies with its own number.
func TestFindReturnsTheNumberOfAFamily(t *testing.T) {
	controller, err := Find("nlctrl")
	if err != nil {
		t.Fatal(err)
	}
	if controller.id != unix.GENL_ID_CTRL {
		t.Errorf("the controller is %+v, want number %d", controller, unix.GENL_ID_CTRL)
	}
	if _, err := Find("no such family"); !errors.Is(err, unix.ENOENT) {
		t.Errorf("of a family that is not there: %v, want ENOENT", err)
	}
}

// The kernel gets all four bytes, so none may come from memory beside the header.
func TestHeaderHasNoForeignBytes(t *testing.T) {
	if got, want := (header{7, 1}).Serialize(), []byte{7, 1, 0, 0}; !bytes.Equal(got, want) {
		t.Errorf("% x, want % x", got, want)
	}
}

func TestAttributesStopAtAMalformedOne(t *testing.T) {
	whole := nl.NewRtAttr(1, []byte("abc")).Serialize()
	nested := nl.NewRtAttr(2|unix.NLA_F_NESTED, []byte{1, 2, 3, 4}).Serialize()
	for name, message := range map[string][]byte{
		"whole":             bytes.Join([][]byte{whole, nested}, nil),
		"without padding":   bytes.Join([][]byte{nested, whole[:7]}, nil),
		"a length below 4":  bytes.Join([][]byte{whole, nested, {3, 0, 1, 0}}, nil),
		"a length too high": bytes.Join([][]byte{whole, nested, {9, 0, 1, 0}}, nil),
		"a rest of 3 bytes": bytes.Join([][]byte{whole, nested, {4, 0, 1}}, nil),
	} {
		n := 0
		for range Attributes(message) {
			n++
		}
		if n != 2 {
			t.Errorf("%s: %d attributes, want 2", name, n)
		}
		if got := Attribute(message, 2); !bytes.Equal(got, []byte{1, 2, 3, 4}) {
			t.Errorf("%s: attribute 2 is % x", name, got)
		}
		if got := Attribute(message, 3); got != nil {
			t.Errorf("%s: attribute 3, which is not there, is % x", name, got)
		}
	}
}
