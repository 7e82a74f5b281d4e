package scripts

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"hash"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
)

// narSum returns the SHA-256 of a file or folder in Nix's archive format (NAR), of which its hashes are.
func narSum(path string) ([]byte, error) {
	sum := sha256.New()
	err := narNode(sum, path, "nix-archive-1")
	return sum.Sum(nil), err
}

func narNode(w hash.Hash, path string, before ...string) error {
	word := func(texts ...string) {
		for _, s := range texts {
			_ = binary.Write(w, binary.LittleEndian, uint64(len(s))) // to a hash: there is no error
			_, _ = io.WriteString(w, s+string(make([]byte, -len(s)&7)))
		}
	}
	word(before...)
	st, err := os.Lstat(path)
	if err != nil {
		return err
	}
	word("(", "type")
	switch {
	case st.IsDir():
		word("directory")
		entries, err := os.ReadDir(path) // sorted as Nix sorts
		if err != nil {
			return err
		}
		for _, e := range entries {
			word("entry", "(", "name", e.Name(), "node")
			if err := narNode(w, filepath.Join(path, e.Name())); err != nil {
				return err
			}
			word(")")
		}
	case st.Mode().IsRegular():
		word("regular")
		if st.Mode()&0o100 != 0 {
			word("executable", "")
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		word("contents", string(text))
	default:
		return fmt.Errorf("%s is neither a file nor a folder", path)
	}
	word(")")
	return nil
}

// TestNar: the sums that nix-hash --type sha256 prints.
func TestNar(t *testing.T) {
	dir := t.TempDir()
	for name, mode := range map[string]os.FileMode{"b": 0o644, "a": 0o755} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("text of "+name+"\n"), mode); err != nil {
			t.Fatal(err)
		}
	}
	sum, err := narSum(dir)
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprintf("%x", sum); got != "d26a86060f955c63f737cd37ab97a58cd94bfe7ef9199fb87e234c024e86a467" {
		t.Error(got)
	}
}

// TestVendorHash: the hash of the modules in flake.nix, without which nix build fails, is that of what go mod vendor
// writes, as Nix's buildGoModule runs it.
func TestVendorHash(t *testing.T) {
	if testing.Short() {
		t.Skip("it copies the source of all modules: make test-all")
	}
	dir := filepath.Join(t.TempDir(), "vendor")
	cmd := exec.CommandContext(t.Context(), "go", "mod", "vendor", "-o", dir)
	cmd.Dir = ".."
	cmd.Env = append(os.Environ(), "GOFLAGS=-mod=mod")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go mod vendor: %v\n%s", err, out)
	}
	sum, err := narSum(dir)
	if err != nil {
		t.Fatal(err)
	}
	want := regexp.MustCompile(`vendorHash = "(sha256-[^"]*)"`).FindStringSubmatch(read(t, "../flake.nix"))
	got := "sha256-" + base64.StdEncoding.EncodeToString(sum)
	if want == nil || want[1] != got {
		t.Errorf("flake.nix has the vendorHash %q; go.mod and go.sum make it %s", want, got)
	}
}
