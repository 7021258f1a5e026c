package shm

import (
	"testing"
	"time"
)

// TestAgeOfAnAbsentValuePassesNoBound: a program that accepts values up to some age must never accept one that was not
// sampled.
func TestAgeOfAnAbsentValuePassesNoBound(t *testing.T) {
	if age := (Value{}).Age(); age < 290*365*24*time.Hour {
		t.Errorf("an absent value is %v old", age)
	}
	if age := (Value{SampledAt: Now() - int64(time.Hour)}).Age(); age < time.Hour || age > 2*time.Hour {
		t.Errorf("a value of an hour ago is %v old", age)
	}
}
