package prepare

import "testing"

func TestSaltOf(t *testing.T) {
	if saltOf(7, "") != 0 {
		t.Error("no salt")
	}
	a := saltOf(7, "a")
	if a < 1<<31 || a == 1<<32-1 || a != saltOf(7, "a") || a == saltOf(8, "a") || a == saltOf(7, "b") {
		t.Errorf("%x %x %x", a, saltOf(8, "a"), saltOf(7, "b"))
	}
}
