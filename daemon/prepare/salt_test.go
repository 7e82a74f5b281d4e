package prepare

import "testing"

func TestSaltOf(t *testing.T) {
	if saltOf(7, "", nil) != 0 {
		t.Error("no salt")
	}
	a := saltOf(7, "a", nil)
	if a < 1<<31 || a == 1<<32-1 || a != saltOf(7, "a", nil) || a == saltOf(8, "a", nil) || a == saltOf(7, "b", nil) {
		t.Errorf("%x %x %x", a, saltOf(8, "a", nil), saltOf(7, "b", nil))
	}
}
