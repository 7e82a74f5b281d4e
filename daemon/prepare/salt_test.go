package prepare

import (
	"math"
	"strconv"
	"testing"
)

func TestSaltOf(t *testing.T) {
	if saltOf(7, "", nil) != 0 {
		t.Error("no salt")
	}
	a := saltOf(7, "a", nil)
	if a <= math.MaxUint32 || a != saltOf(7, "a", nil) || a == saltOf(8, "a", nil) || a == saltOf(7, "b", nil) {
		t.Errorf("%x %x %x", a, saltOf(8, "a", nil), saltOf(7, "b", nil))
	}
}

// With 31 bits, 200,000 salts would have nine equal pairs.
func TestSaltsDoNotCollide(t *testing.T) {
	seen := make(map[uint64]string, 200_000)
	for i := range 100_000 {
		for _, lora := range [][]byte{nil, []byte("adapter")} {
			salt := strconv.Itoa(i)
			ns := saltOf(7, salt, lora)
			if other, ok := seen[ns]; ok {
				t.Fatalf("salts %q and %q with adapters %q have namespace %x", other, salt, lora, ns)
			}
			seen[ns] = salt
		}
	}
}
