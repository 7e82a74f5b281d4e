//go:build cgo && (llama_engine || llama_system)

package llama

import (
	"os"
	"os/exec"
	"testing"
)

// TestFreedMemoryIsNotRead opens and closes models in a process whose C library overwrites what is freed (glibc;
// another one ignores it): what is read after it has been freed is no pointer then.
func TestFreedMemoryIsNotRead(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "-test.run=^(TestKVBytesPerToken|TestModelInfo)$")
	cmd.Env = append(os.Environ(), "MALLOC_PERTURB_=165", "GLIBC_TUNABLES=glibc.malloc.tcache_count=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
